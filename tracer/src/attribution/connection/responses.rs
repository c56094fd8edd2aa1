//! Responses of a connection, first in, first out; by turn-taking where their bytes are lost.

use super::*;

impl Connection {
    /// Turn-taking: whether a write of a lost stream begins a response.
    pub(super) fn responses_resume(&mut self, edge: &Edge) -> bool {
        if status(kept_head(edge)) == 0 {
            return false;
        }
        let resumes = match self.answering() {
            None => self.hidden_in.is_some(),
            Some(index) if !self.open[index].answered() => true,
            Some(index) if self.open[index].has_final_status() && index + 1 < self.open.len() => {
                self.open[index].response_over = true;
                true
            }
            Some(_) => false,
        };
        if resumes {
            self.responses.restart();
        }
        resumes
    }

    /// A write of a lost stream, or one that moved nothing, belongs to the response under way.
    pub(super) fn write_on(&mut self, edge: &Edge, ledger: &mut Ledger) {
        let call = Call::from(edge);
        match self.answering() {
            Some(index) => self.open[index].write(&call, Share::whole(&call)),
            None if edge.result > 0 && !self.refused => ledger.unmatched_edges += 1,
            None => {}
        }
    }

    pub(super) fn follow_responses(&mut self, edge: &Edge, around: &mut Around) {
        let call = Call::from(edge);
        let kept = kept_head(edge);
        let mut bytes = Bytes::new(edge.result as u64, kept);
        let (mut from, mut interim_end, mut switches, mut carried) = (0, None, false, 0);
        while let Some(index) = self.answering().or_else(|| self.uncover(bytes.seen(), around.threads)) {
            let step = self.responses.step(&mut bytes, self.open[index].method());
            let moved_bytes = bytes.at() - from;
            match step {
                Some(Step::Begins) => {}
                Some(Step::Head(head)) => {
                    self.open[index].has_status(head.status);
                    interim_end = head.is_interim.then(|| bytes.at());
                    switches = head.switches;
                }
                Some(Step::Ends) => {
                    self.give_share(index, &call, moved_bytes, &mut carried);
                    from = bytes.at();
                    self.open[index].response_over = true;
                    if switches {
                        self.open[index].request_over = true;
                        self.protocol = Protocol::Foreign;
                        around.ledger.upgraded_connections += 1;
                        return;
                    }
                }
                Some(Step::Lost(lost)) => {
                    let head = kept.get(from as usize..).unwrap_or_default();
                    self.responses_lost(index, lost, head, carried > 0);
                    self.give_share(index, &call, moved_bytes, &mut carried);
                    return;
                }
                None => {
                    self.give_share(index, &call, moved_bytes, &mut carried);
                    if interim_end == Some(bytes.at()) {
                        self.open[index].was_interim();
                    }
                    return;
                }
            }
        }
        if bytes.left() > 0 && !self.refused {
            around.ledger.unmatched_edges += 1;
        }
    }

    /// A response so many of whose bytes are in this call, which carried others before it.
    pub(super) fn give_share(&mut self, index: usize, call: &Call, bytes: u64, carried: &mut u32) {
        if bytes == 0 {
            return;
        }
        self.open[index].write(call, Share { bytes, counts: *carried == 0 });
        *carried += 1;
        if *carried > 1 {
            self.open[index].shares_write();
            if *carried == 2 && index > 0 {
                self.open[index - 1].shares_write();
            }
        }
    }

    pub(super) fn responses_lost(&mut self, index: usize, lost: Lost, head: &[u8], in_batch: bool) {
        let exchange = &mut self.open[index];
        if exchange.method().is_empty() || !exchange.has_final_status() {
            exchange.has_status(status(head));
        }
        exchange.infer(match lost {
            Lost::HeadUnseen => Inference::ResponseHeadUnseen,
            Lost::ChunkUnseen => Inference::ResponseChunksUnseen,
            Lost::BeginningUnseen => Inference::ResponseUnseen,
            Lost::Malformed | Lost::NotHttp | Lost::Http2 => Inference::ResponseMalformed,
        });
        self.batch_cut_short = in_batch;
    }

    /// A response without a request, after a read that may hold requests nobody saw: it tells of one of them.
    pub(super) fn uncover(&mut self, response: &[u8], threads: &Threads) -> Option<usize> {
        // 408 is what a server says without being asked.
        if matches!(status(response), 0 | 408) {
            return None;
        }
        let read = self.hidden_in.take()?;
        self.begin(&read, (read.exit_ns, None), threads);
        self.infer_last(Inference::RequestUnseen);
        self.last_is_read();
        self.hidden_in = Some(read);
        self.open.len().checked_sub(1)
    }
}
