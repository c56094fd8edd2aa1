use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::{
    ClientTimes, DownstreamPeer, Grade, Inference, RequestCpu, ThreadStates, WRITES_KEPT, WriteCall,
};
use super::*;

prop_compose! {
    fn thread_states()(ns in any::<[u64; 5]>()) -> ThreadStates {
        ThreadStates {
            own_cpu_ns: ns[0], other_cpu_ns: ns[1], run_queue_ns: ns[2], blocked_ns: ns[3], unknown_ns: ns[4],
        }
    }
}

fn write_call() -> impl Strategy<Value = WriteCall> {
    (0u16..600, any::<i64>(), any::<u32>()).prop_map(|(call, result, iovecs)| WriteCall {
        call,
        result,
        iovecs,
    })
}

fn peer() -> impl Strategy<Value = DownstreamPeer> {
    (any::<(u32, u32, u64, u64, u64)>(), name()).prop_map(|(counts, peer)| {
        let (round_trips, inferred, wait_ns, bytes_out, bytes_in) = counts;
        DownstreamPeer { peer, round_trips, inferred, wait_ns, bytes_out, bytes_in }
    })
}

fn name() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![Just(""), Just("GET"), Just("/users/42"), Just("/ü\"\n")].prop_map(Arc::from)
}

prop_compose! {
    fn request()(
        ids in any::<(u64, u32, u16, u16, u32, u32, u32)>(),
        (method, path, status) in (name(), name(), any::<u16>()),
        grade in prop::sample::select(&Grade::ALL),
        inference in prop::option::of(prop::sample::select(&Inference::ALL)),
        marks in any::<(u64, u64, [u64; 7])>(),
        states in prop::array::uniform7(thread_states()),
        parts in any::<[u64; 5]>(),
        cpu in any::<[u64; 5]>(),
        blocked_call_plus_one in 0u32..600,
        counts in any::<(u32, u32, u32, u32, u32, u64, u64)>(),
        writes in prop::collection::vec(write_call(), 0..=WRITES_KEPT),
        client in prop::option::of(any::<(u64, u64, u64)>()),
        downstream in prop::collection::vec(peer(), 0..4),
    ) -> Request {
        let mut write_calls = [WriteCall::default(); WRITES_KEPT];
        write_calls[..writes.len()].copy_from_slice(&writes);
        let (connection_id, index, local_port, remote_port, process_id, read_thread_id, write_thread_id) = ids;
        let (first_byte_ns, end_ns, phases_ns) = marks;
        let [body_read_ns, body_wait_ns, write_gap_ns, write_tail_ns, wakeup_ns] = parts;
        let (reads, shared_reads, writes_moved, shared_writes, writes_eagain, bytes_in, bytes_out) = counts;
        Request {
            connection_id, index, local_port, remote_port, process_id, read_thread_id, write_thread_id,
            method, path, status, grade, inference, first_byte_ns, end_ns, acked_ns: end_ns ^ 7, phases_ns, states,
            body_read_ns, body_wait_ns, write_gap_ns, write_tail_ns, wakeup_ns,
            cpu: RequestCpu {
                read_ns: cpu[0], app_user_ns: cpu[1], app_syscall_ns: cpu[2], write_ns: cpu[3], write_tail_ns: cpu[4],
            },
            blocked_call_plus_one, reads, shared_reads, writes: writes_moved, shared_writes, writes_eagain,
            write_calls, write_calls_len: writes.len() as u8,
            bytes_in, bytes_out, downstream, before_downstream_ns: end_ns ^ 9,
            client: client.map(|(send_ns, first_byte_ns, done_ns)| ClientTimes {
                send_ns,
                first_byte_ns,
                done_ns,
            }),
        }
    }
}

fn run() -> Run {
    Run { schema_version: SCHEMA_VERSION, name: "node".into(), window_ns: 7, ..Run::default() }
}

fn write_recording(path: &Path, requests: &[Request]) {
    let mut writer = Writer::create(path).unwrap();
    for request in requests {
        writer.write(request.clone()).unwrap();
    }
    writer.finish(&run()).unwrap();
}

fn empty_recording() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    write_recording(&path, &[Request::default()]);
    (folder, path)
}

fn error_of<T>(result: Result<T>, folder: &TempDir) -> String {
    let message = format!("{:#}", result.err().expect("an error"));
    message.replace(&folder.path().display().to_string(), "HERE")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_was_written_is_read_back(requests in prop::collection::vec(request(), 0..40)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        write_recording(&path, &requests);
        let recording = open(&path).unwrap();
        prop_assert_eq!(recording.run, run());
        let read: Vec<Request> = recording.requests.map(Result::unwrap).collect();
        prop_assert_eq!(read, requests);
    }
}

#[test]
fn many_batches_and_row_groups_keep_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let mut writer = Writer::create(&path).unwrap();
    let rows = (ROW_GROUP_ROWS + BATCH_ROWS + 1) as u64;
    for connection_id in 0..rows {
        writer.write(Request { connection_id, ..Request::default() }).unwrap();
    }
    writer.finish(&run()).unwrap();
    let read = open(&path).unwrap().requests.map(|request| request.unwrap().connection_id);
    assert!(read.eq(0..rows));
}

#[test]
fn dropped_unfinished_it_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&folder.path().join("recording")).unwrap();
    writer.write(Request::default()).unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn finished_it_stands_alone() {
    let (folder, path) = empty_recording();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let mut files: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, [REQUESTS_FILE, RUN_FILE]);
}

#[test]
fn nothing_is_overwritten() {
    let (folder, path) = empty_recording();
    insta::assert_snapshot!(error_of(Writer::create(&path), &folder), @"HERE/recording holds a recording already: remove it, or choose another place with -o");
    fs::write(folder.path().join("file"), "precious").unwrap();
    insta::assert_snapshot!(error_of(Writer::create(&folder.path().join("file")), &folder), @"HERE/file exists and is not a recording, so it is left alone: choose another place with -o");
    assert!(Writer::create(&folder.path().join("no/such/folder/recording")).is_err());
}

#[test]
fn what_is_no_recording_is_named() {
    let (folder, path) = empty_recording();
    let error = || error_of(open(&path), &folder);

    fs::write(path.join(RUN_FILE), r#"{"schema_version": 3}"#).unwrap();
    insta::assert_snapshot!(error(), @"run.json of HERE/recording is damaged (missing field `tracer_version` at line 1 column 21): record again");
    fs::write(path.join(RUN_FILE), r#"{"schema_version": 99}"#).unwrap();
    insta::assert_snapshot!(error(), @"HERE/recording has format version 99, this tracer reads version 3: read it with the tracer that wrote it, or record again");
    fs::write(path.join(RUN_FILE), r#"{"name": "package.json"}"#).unwrap();
    insta::assert_snapshot!(error(), @"HERE/recording is not a recording: its run.json was not written by tracer (missing field `schema_version` at line 1 column 24)");
    fs::remove_file(path.join(RUN_FILE)).unwrap();
    insta::assert_snapshot!(error(), @"HERE/recording is not a recording: it has no run.json; give the directory that `tracer record -o` wrote");
    insta::assert_snapshot!(error_of(open(&path.join(REQUESTS_FILE)), &folder), @"HERE/recording/requests.parquet is not a recording: it is not a directory; give the directory that `tracer record -o` wrote");
    insta::assert_snapshot!(error_of(open(&path.join("absent")), &folder), @"cannot open the recording HERE/recording/absent: No such file or directory (os error 2); give the directory that `tracer record -o` wrote");
}

#[test]
fn truncated_requests_are_named() {
    let (folder, path) = empty_recording();
    let parquet = path.join(REQUESTS_FILE);
    let whole = fs::read(&parquet).unwrap();
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        fs::write(&parquet, &whole[..length]).unwrap();
        let message = error_of(open(&path), &folder);
        assert!(
            message.starts_with("requests.parquet of HERE/recording is truncated or damaged ("),
            "{message}"
        );
    }
    fs::remove_file(&parquet).unwrap();
    insta::assert_snapshot!(error_of(open(&path), &folder), @"HERE/recording is not a whole recording: cannot open its requests.parquet (No such file or directory (os error 2)); record again");
}

#[test]
fn every_column_says_what_it_holds_and_nanoseconds_end_in_ns() {
    let columns = Columns::new();
    for field in columns.schema().fields() {
        assert!(!field.metadata()["meaning"].is_empty(), "{}", field.name());
    }
    let ns = columns.iter().filter(|column| column.unit() == "ns").count();
    assert_eq!(ns, 3 + 7 + 5 + 3 + 35 + 5 + 2);
}
