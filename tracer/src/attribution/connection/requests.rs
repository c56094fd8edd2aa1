//! Requests of a connection, begun and ended by their bytes; by turn-taking where those are lost.

use super::*;

impl Connection {
    /// Turn-taking: whether a read of a lost stream begins a request.
    pub(super) fn requests_resume(&mut self, edge: &Edge) -> bool {
        let resumes = heads::begins_request(kept_head(edge))
            && self.open.back().is_none_or(|last| last.answered() || last.awaits_no_body());
        if resumes {
            self.requests.restart();
        }
        resumes
    }

    /// A read of a lost stream that begins no request belongs to the last one.
    pub(super) fn read_on(&mut self, edge: &Edge, taken: &Taken, around: &mut Around) {
        let call = Call::from(edge);
        match self.open.back_mut() {
            Some(last) => last.read(&call, Share::whole(&call), false),
            None if is_tls(kept_head(edge)) => {
                self.protocol = Protocol::Opaque { confirmed: false };
                self.read_opaque(edge, taken, around);
            }
            None if self.refused || self.hidden_in.is_some() => {}
            None => around.ledger.unmatched_edges += 1,
        }
    }

    pub(super) fn follow_requests(&mut self, edge: &Edge, taken: &Taken, around: &mut Around) {
        let call = Call::from(edge);
        let mut bytes = Bytes::new(edge.result as u64, kept_head(edge));
        let (mut from, mut completes_head, mut carried) = (0, false, 0);
        loop {
            match self.requests.step(&mut bytes, around.heads) {
                Some(Step::Begins) => {
                    from = bytes.at();
                    completes_head = false;
                    self.begin(&call, taken.first_byte(from), around.threads);
                }
                Some(Step::Head(())) => {
                    completes_head = true;
                    self.name_last();
                }
                Some(Step::Ends) => {
                    self.take_share(&call, bytes.at() - from, completes_head, &mut carried);
                    from = bytes.at();
                    self.last_is_read();
                }
                Some(Step::Lost(Lost::BeginningUnseen)) => {
                    around.ledger.reads_cut_short += 1;
                    self.hidden_in = Some(Box::new(call));
                    return;
                }
                Some(Step::Lost(lost)) => {
                    self.requests_lost(lost, &call, around.ledger);
                    self.take_share(&call, bytes.at() - from, true, &mut carried);
                    self.last_is_read();
                    return;
                }
                None => {
                    self.take_share(&call, bytes.at() - from, completes_head, &mut carried);
                    return;
                }
            }
        }
    }

    /// The last request has so many bytes in this call, which carried others before it.
    pub(super) fn take_share(&mut self, call: &Call, bytes: u64, completes_head: bool, carried: &mut u32) {
        let count = self.open.len();
        let Some(last) = self.open.back_mut().filter(|last| bytes > 0 && !last.request_over) else { return };
        last.read(call, Share { bytes, counts: *carried == 0 }, completes_head);
        *carried += 1;
        if *carried > 1 {
            last.shares_read();
            if *carried == 2 && count > 1 {
                self.open[count - 2].shares_read();
            }
        }
    }

    pub(super) fn name_last(&mut self) {
        if let Some(last) = self.open.back_mut() {
            last.name(self.requests.head());
        }
    }

    /// The stream was lost in the last request, or what seemed to begin one does not.
    pub(super) fn requests_lost(&mut self, lost: Lost, call: &Call, ledger: &mut Ledger) {
        let is_first = self.begun == 1 && self.acceptance.is_some();
        match lost {
            Lost::Http2 => {
                self.forget_last();
                self.protocol = Protocol::Foreign;
                ledger.http2_connections += 1;
            }
            Lost::NotHttp if is_first => {
                self.protocol = Protocol::Opaque { confirmed: false };
                self.infer_last(Inference::NotHttp);
            }
            Lost::NotHttp => {
                self.forget_last();
                self.refused = true;
                ledger.malformed_requests += 1;
            }
            Lost::HeadUnseen | Lost::BeginningUnseen => {
                self.name_last();
                self.infer_last(Inference::HeadUnseen);
                self.hidden_in = Some(Box::new(*call));
            }
            Lost::ChunkUnseen => {
                self.infer_last(Inference::BodyUnseen);
                self.hidden_in = Some(Box::new(*call));
            }
            Lost::Malformed => {
                self.name_last();
                self.infer_last(Inference::RequestMalformed);
            }
        }
    }

    pub(super) fn last_is_read(&mut self) {
        if let Some(last) = self.open.back_mut() {
            last.request_over = true;
        }
    }

    pub(super) fn infer_last(&mut self, inference: Inference) {
        if let Some(last) = self.open.back_mut() {
            last.infer(inference);
        }
    }

    pub(super) fn forget_last(&mut self) {
        self.open.pop_back();
        self.begun -= 1;
    }

    pub(super) fn begin(&mut self, call: &Call, first_byte: (u64, Option<Inference>), threads: &Threads) {
        if self.responses.is_lost() {
            self.end_by_turn();
        }
        self.refused = false;
        self.hidden_in = None;
        let previous = self.open.back().filter(|previous| previous.response_over);
        let (first_byte_ns, inference) = first_byte;
        let beginning = Beginning {
            index: self.begun,
            first_byte_ns,
            acceptance: if self.begun == 0 { self.acceptance } else { None },
            previous_end_ns: previous.map_or(self.previous_end_ns, Exchange::end_ns),
            inference,
        };
        self.begun += 1;
        self.open.push_back(Exchange::begin(&beginning, call, threads));
    }

    /// Turn-taking: a new request begins, so that what was answered is over.
    pub(super) fn end_by_turn(&mut self) {
        let mut batch: Option<Call> = None;
        for exchange in self.open.iter_mut().filter(|exchange| !exchange.response_over) {
            if exchange.answered() {
                batch = exchange.last_write().filter(|_| self.batch_cut_short);
            } else if let Some(write) = batch.filter(|write| exchange.was_read_before(write)) {
                exchange.write(&write, Share { bytes: 0, counts: false });
                exchange.shares_write();
                exchange.infer(Inference::ResponseUnseen);
            } else {
                break;
            }
            exchange.response_over = true;
        }
        self.batch_cut_short = false;
        self.responses.restart();
    }
}
