//! A kernel dies: what its programs had, and what others had of it.

use super::{
    model::Phase,
    program::{Call, Program, What},
    verdict,
};
use ::machine::KernelId;

impl Program {
    /// In the middle of a step. What was known of an end that was just moving from or to the dead kernel is not known any more: it counts as closed.
    pub(super) fn die(&mut self, dead: KernelId) {
        // First of all: what it has is dropped and says nothing.
        self.kernels.machine.kill(dead);
        self.dead.insert(dead);
        let lost: Vec<Call> = self.calls.extract_if(.., |call| call.on == dead).collect();
        // What they have sent and received of an end nobody knows: it is closed everywhere.
        for (end, _) in lost.iter().filter_map(|call| verdict::moving(&call.what)) {
            self.connections[end.0].sides[end.1].twin = None;
        }
        for call in &lost {
            if let What::Mail { mail, .. } = &call.what {
                self.note_mail(mail, None);
            }
        }
        self.boxes_died(dead);
        self.watchers.remove(&dead);
        for connection in &mut self.connections {
            connection.shake(dead);
            for side in &mut connection.sides {
                side.twin.take_if(|(kernel, _)| *kernel == dead);
                if side.user == dead && side.kernel != dead {
                    side.close();
                    // What it has sent last is not known, unless others have it, too.
                    side.facts.torn |= side.facts.gone;
                    side.facts.hard |= side.facts.gone;
                }
                if side.kernel == dead {
                    side.twin = None;
                    side.close();
                    (side.facts.torn, side.facts.hard) = (true, true);
                }
            }
            if connection.sides[0].facts.gone && connection.phase == Phase::Connecting {
                connection.phase = Phase::Unknown;
            }
        }
        for listener in 0..self.listeners.len() {
            if self.listeners[listener].kernel == dead || self.listeners[listener].user == dead {
                self.listeners[listener].file = None;
                self.lose_unaccepted(listener);
            }
        }
        self.cut_off.extend(lost.into_iter().map(|Call { what, .. }| what));
        self.kernels.mourn(dead);
    }
}
