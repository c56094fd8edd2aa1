//! The columns of `requests.parquet`: one table that drives the schema, the writer and the reader.
//!
//! Names end in their unit (`_ns`, `_bytes`); unit and meaning also stand in the metadata of each field.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_schema::{Schema, SchemaRef};

use super::column::{
    Column, blocked_call, client, downstream_peers, grade, inference, nanoseconds, number, numbers, text,
    write_names,
};
use super::{DownstreamPeer, Phase, Request, RequestCpu, ThreadStates};

/// Every column, in file order.
pub struct Columns(Vec<Column>);

impl Columns {
    /// The columns of this version of the format.
    pub fn new() -> Self {
        let mut columns = identity();
        columns.extend(times());
        columns.extend(states());
        columns.extend(cpu());
        columns.extend(calls());
        columns.extend(downstream());
        Self(columns)
    }

    /// Every column, in file order.
    pub fn iter(&self) -> impl Iterator<Item = &Column> {
        self.0.iter()
    }

    /// The schema, with unit and meaning as metadata of each field.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.iter().map(Column::field).collect::<Vec<_>>()))
    }

    /// The requests as one batch of `schema`.
    pub fn batch(&self, schema: SchemaRef, requests: &mut [Request]) -> Result<RecordBatch> {
        let arrays = self.iter().map(|column| (column.to_array)(requests)).collect();
        Ok(RecordBatch::try_new(schema, arrays)?)
    }

    /// Says which column is missing or of another type, if any. Columns unknown to us are allowed.
    pub fn check(&self, schema: &Schema) -> Result<()> {
        for column in self.iter() {
            let field = schema
                .field_with_name(&column.name)
                .map_err(|_| anyhow!("it has no column `{}`", column.name))?;
            let (found, wanted) = (field.data_type(), &column.data_type);
            ensure!(
                found.equals_datatype(wanted),
                "its column `{}` holds {found}, not {wanted}",
                column.name
            );
        }
        Ok(())
    }

    /// The requests of one batch whose schema passed [`Self::check`].
    pub fn requests(&self, batch: &RecordBatch) -> Result<Vec<Request>> {
        let mut requests = vec![Request::default(); batch.num_rows()];
        for column in self.iter() {
            let array = batch.column_by_name(&column.name).context("a column is missing")?;
            (column.from_array)(&mut requests, array).with_context(|| format!("column `{}`", column.name))?;
        }
        Ok(requests)
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self::new()
    }
}

fn identity() -> Vec<Column> {
    vec![
        number::<UInt64Type>("connection_id", "connection, unique within the run", |r| &mut r.connection_id),
        number::<UInt32Type>("index", "ordinal of the request on its connection, from 0", |r| &mut r.index),
        number::<UInt16Type>("local_port", "the server's port", |r| &mut r.local_port),
        number::<UInt16Type>("remote_port", "the client's port", |r| &mut r.remote_port),
        number::<UInt32Type>("process_id", "process that read it", |r| &mut r.process_id),
        number::<UInt32Type>("read_thread_id", "thread that read its head", |r| &mut r.read_thread_id),
        number::<UInt32Type>("write_thread_id", "thread that began the response", |r| &mut r.write_thread_id),
        text("method", "method as sent; empty: not seen", |r| &mut r.method),
        text("path", "path; empty: not seen", |r| &mut r.path),
        number::<UInt16Type>("status", "status of the response; 0: not seen", |r| &mut r.status),
        grade(),
        inference(),
    ]
}

fn times() -> Vec<Column> {
    let mut columns = vec![
        nanoseconds("first_byte_ns", "CLOCK_MONOTONIC when its first byte became readable", |r| {
            &mut r.first_byte_ns
        }),
        nanoseconds("end_ns", "CLOCK_MONOTONIC when its last byte was delivered", |r| &mut r.end_ns),
        nanoseconds("acked_ns", "CLOCK_MONOTONIC when its last byte was acknowledged; 0: not seen", |r| {
            &mut r.acked_ns
        }),
    ];
    columns.extend(Phase::ALL.map(|phase| {
        let meaning = format!("wall time of phase {}", phase.label());
        nanoseconds(format!("{}_ns", phase.key()), meaning, move |r| &mut r.phases_ns[phase as usize])
    }));
    columns.extend([
        nanoseconds("body_read_ns", "of app: reading the rest of the body", |r| &mut r.body_read_ns),
        nanoseconds("body_wait_ns", "of app: waiting for the rest of the body", |r| &mut r.body_wait_ns),
        nanoseconds("write_gap_ns", "of write: between its write calls", |r| &mut r.write_gap_ns),
        nanoseconds("write_tail_ns", "in the last write call after delivery; not in the sum", |r| {
            &mut r.write_tail_ns
        }),
        nanoseconds("wakeup_ns", "of queue: until the sleeping thread ran", |r| &mut r.wakeup_ns),
        client("client_send_ns", "CLOCK_MONOTONIC before the driver's write", |c| &mut c.send_ns),
        client("client_first_byte_ns", "CLOCK_MONOTONIC after the driver's first read of it", |c| {
            &mut c.first_byte_ns
        }),
        client("client_done_ns", "CLOCK_MONOTONIC after the driver's last read", |c| &mut c.done_ns),
    ]);
    columns
}

type StateField = fn(&mut ThreadStates) -> &mut u64;

fn states() -> Vec<Column> {
    let states: [(&str, &str, StateField); 5] = [
        ("own_cpu", "on a CPU for this request", |s| &mut s.own_cpu_ns),
        ("other_cpu", "on a CPU for something else", |s| &mut s.other_cpu_ns),
        ("run_queue", "runnable, waiting for a CPU", |s| &mut s.run_queue_ns),
        ("blocked", "blocked or asleep", |s| &mut s.blocked_ns),
        ("unknown", "not known", |s| &mut s.unknown_ns),
    ];
    let column = |phase: Phase, (key, meaning, field): (&str, &str, StateField)| {
        let meaning = format!("of {}: its thread was {meaning}", phase.key());
        nanoseconds(format!("{}_{key}_ns", phase.key()), meaning, move |r| {
            field(&mut r.states[phase as usize])
        })
    };
    Phase::ALL.into_iter().flat_map(|phase| states.map(|state| column(phase, state))).collect()
}

fn cpu() -> Vec<Column> {
    type CpuField = fn(&mut RequestCpu) -> &mut u64;
    let parts: [(&str, &str, CpuField); 5] = [
        ("cpu_read_ns", "own CPU in read calls", |c| &mut c.read_ns),
        ("cpu_app_user_ns", "own CPU in app, in user space", |c| &mut c.app_user_ns),
        ("cpu_app_syscall_ns", "own CPU in app, in syscalls", |c| &mut c.app_syscall_ns),
        ("cpu_write_ns", "own CPU in write calls, until delivery", |c| &mut c.write_ns),
        ("cpu_write_tail_ns", "own CPU in write calls, after delivery", |c| &mut c.write_tail_ns),
    ];
    parts.map(|(name, meaning, field)| nanoseconds(name, meaning, move |r| field(&mut r.cpu))).into()
}

fn calls() -> Vec<Column> {
    vec![
        blocked_call(),
        number::<UInt32Type>(
            "reads",
            "read calls that returned bytes of it; one with bytes of several requests counts, with its CPU, for the first",
            |r| &mut r.reads,
        ),
        number::<UInt32Type>(
            "shared_reads",
            "read calls, counted for it or not, with bytes of it and of another request",
            |r| &mut r.shared_reads,
        ),
        number::<UInt32Type>(
            "writes",
            "write calls that moved bytes; one with bytes of several responses counts, with its CPU, for the first",
            |r| &mut r.writes,
        ),
        number::<UInt32Type>(
            "shared_writes",
            "write calls, counted for it or not, with bytes of its response and of another",
            |r| &mut r.shared_writes,
        ),
        number::<UInt32Type>("writes_eagain", "write calls that returned EAGAIN", |r| &mut r.writes_eagain),
        write_names(),
        numbers::<Int64Type, _>(
            "write_results",
            "bytes each of the first 8 write calls moved, or its negative errno",
            Request::kept_writes_mut,
            |w| &mut w.result,
        ),
        numbers::<UInt32Type, _>(
            "write_iovecs",
            "buffers given to each of the first 8 write calls; 0: sendfile, splice",
            Request::kept_writes_mut,
            |w| &mut w.iovecs,
        ),
        number::<UInt64Type>("bytes_in", "request bytes read", |r| &mut r.bytes_in),
        number::<UInt64Type>("bytes_out", "response bytes written", |r| &mut r.bytes_out),
    ]
}

fn peers(request: &mut Request) -> &mut [DownstreamPeer] {
    &mut request.downstream
}

fn downstream() -> Vec<Column> {
    vec![
        nanoseconds(
            "before_downstream_ns",
            "of app: until something was first sent downstream; 0: nothing was",
            |r| &mut r.before_downstream_ns,
        ),
        downstream_peers(),
        numbers::<UInt32Type, _>(
            "downstream_round_trips",
            "round trips to each of downstream_peers",
            peers,
            |peer| &mut peer.round_trips,
        ),
        numbers::<UInt32Type, _>(
            "downstream_inferred",
            "of them, those that another request open then may have made",
            peers,
            |peer| &mut peer.inferred,
        ),
        numbers::<UInt64Type, _>(
            "downstream_wait_ns",
            "from the last byte sent until the answer began to arrive, summed over the round trips",
            peers,
            |peer| &mut peer.wait_ns,
        ),
        numbers::<UInt64Type, _>("downstream_bytes_out", "bytes sent to it", peers, |peer| {
            &mut peer.bytes_out
        }),
        numbers::<UInt64Type, _>("downstream_bytes_in", "bytes received from it", peers, |peer| {
            &mut peer.bytes_in
        }),
    ]
}
