//! Connections that do not speak HTTP/1, as far as can be seen: they take turns.

use super::*;

impl Connection {
    pub(super) fn read_opaque(&mut self, edge: &Edge, taken: &Taken, around: &mut Around) {
        let call = Call::from(edge);
        if self.open.back().is_none_or(Exchange::answered) {
            for exchange in &mut self.open {
                exchange.response_over = true;
            }
            self.begin(&call, taken.first_byte(0), around.threads);
            self.infer_last(Inference::NotHttp);
        }
        if let Some(last) = self.open.back_mut() {
            last.read(&call, Share::whole(&call), true);
            last.request_over = true;
        }
    }

    pub(super) fn write_opaque(&mut self, edge: &Edge, confirmed: bool, ledger: &mut Ledger) {
        if !confirmed && status(kept_head(edge)) != 0 {
            // A server of HTTP refuses what it was sent: that was no request, and nothing opaque.
            self.open.clear();
            self.begun = 0;
            self.protocol = Protocol::Http1;
            self.refused = true;
            ledger.malformed_requests += 1;
            return;
        }
        if !confirmed && edge.result > 0 {
            self.protocol = Protocol::Opaque { confirmed: true };
            ledger.opaque_connections += 1;
        }
        self.write_on(edge, ledger);
    }
}
