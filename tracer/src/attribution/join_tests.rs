use super::*;

const PORT: u16 = 40_000;

fn request(connection_id: u64, first_byte_ns: u64) -> Request {
    Request {
        connection_id,
        remote_port: PORT,
        first_byte_ns,
        end_ns: first_byte_ns + 10,
        ..Request::default()
    }
}

/// Of a request whose first byte came one nanosecond after it was sent.
fn sample(first_byte_ns: u64) -> Sample {
    Sample {
        remote_port: PORT,
        send_ns: first_byte_ns - 1,
        first_byte_ns: first_byte_ns + 11,
        done_ns: first_byte_ns + 12,
    }
}

#[derive(Default)]
struct Bed {
    joiner: Joiner,
    out: Vec<Request>,
}

impl Bed {
    fn opened(&mut self, at_ns: u64) {
        self.joiner
            .client(ClientRecord::Opened { remote_port: PORT, at_ns }, &mut |request| self.out.push(request));
    }

    fn answered(&mut self, first_bytes_ns: &[u64]) {
        let samples = first_bytes_ns.iter().map(|&at_ns| sample(at_ns)).collect();
        self.joiner.client(ClientRecord::Answered(samples), &mut |request| self.out.push(request));
    }

    fn traced(&mut self, connection_id: u64, first_byte_ns: u64) {
        self.joiner.request(request(connection_id, first_byte_ns), &mut |request| self.out.push(request));
    }

    /// Each request's beginning, with whether the driver's times were joined with it; joined; of other clients.
    #[track_caller]
    fn assert(mut self, expected: &[(u64, bool)], other_clients: u64) {
        self.joiner.finish(&mut |request| self.out.push(request));
        let found: Vec<_> =
            self.out.iter().map(|request| (request.first_byte_ns, request.client.is_some())).collect();
        assert_eq!(found, expected);
        for request in &self.out {
            let expected = sample(request.first_byte_ns);
            let times = ClientTimes {
                send_ns: expected.send_ns,
                first_byte_ns: expected.first_byte_ns,
                done_ns: expected.done_ns,
            };
            assert_eq!(request.client.unwrap_or(times), times);
        }
        let joined = expected.iter().filter(|(_, joined)| *joined).count() as u64;
        assert_eq!((self.joiner.counts.joined, self.joiner.counts.other_clients), (joined, other_clients));
        assert_eq!(self.joiner.counts.contradictions, 0, "{:?}", self.joiner.counts.contradiction_example);
    }
}

#[test]
fn requests_find_their_samples_whoever_comes_first() {
    let mut bed = Bed::default();
    bed.opened(50);
    bed.traced(1, 100);
    bed.answered(&[100, 200]);
    bed.traced(1, 200);
    // The next run tells of the connection again.
    bed.opened(50);
    bed.traced(1, 300);
    bed.answered(&[300]);
    bed.assert(&[(100, true), (200, true), (300, true)], 0);
}

#[test]
fn connections_from_one_port_follow_each_other() {
    let mut bed = Bed::default();
    bed.opened(50);
    bed.opened(150);
    bed.opened(250);
    bed.traced(1, 100);
    bed.traced(2, 200);
    bed.traced(3, 300);
    bed.answered(&[100, 200, 300]);
    bed.assert(&[(100, true), (200, true), (300, true)], 0);
}

#[test]
fn a_port_that_others_use_before_and_after_is_the_drivers_in_between() {
    let mut bed = Bed::default();
    bed.opened(150);
    bed.traced(1, 100);
    bed.traced(2, 200);
    bed.traced(3, 300);
    bed.joiner.unanswered(Unanswered { connection_id: 3, remote_port: PORT, first_byte_ns: 400 });
    bed.joiner.unanswered(Unanswered { connection_id: 2, remote_port: PORT, first_byte_ns: 250 });
    bed.joiner.unanswered(Unanswered { connection_id: 4, remote_port: 1, first_byte_ns: 1 });
    bed.answered(&[200]);
    bed.assert(&[(100, false), (300, false), (200, true)], 4);
}

#[test]
fn what_was_lost_or_given_up_leaves_its_neighbours_joined() {
    let mut bed = Bed::default();
    bed.opened(50);
    // The kernel's side of 100 was lost; on 200 the driver gave up.
    bed.answered(&[100]);
    bed.traced(1, 200);
    bed.traced(1, 300);
    bed.answered(&[300]);
    bed.assert(&[(200, false), (300, true)], 0);
}

#[test]
fn times_that_do_not_contain_each_other_are_defects() {
    let mut bed = Bed::default();
    bed.opened(50);
    bed.answered(&[100]);
    bed.traced(1, 95);
    assert_eq!((bed.joiner.counts.contradictions, bed.joiner.counts.joined), (1, 1));
}
