//! Sockets in messages that hold each other in a circle: nobody can ever receive them.
//!
//! As Linux's unix_gc did up to 6.8: of the sockets that others hold (in messages of their inbox, as the connections that wait in a
//! listener) those stay that somebody else has, too, and what they hold, and what that
//! holds. The inboxes of the rest are emptied.
//!
//! # On one kernel
//!
//! A [`Survey`] goes through the sockets that hold others, one after the other and with pauses, and counts how many references to each
//! it finds. One that has more than were found has another user. Meanwhile everything goes on:
//!
//! ```text
//! survey                                      a program that has the descriptor of b
//! finds b in a's inbox: one reference
//!                                             receives that message, closes its old descriptor
//! b has one reference, and that was found
//! ```
//!
//! So each reference to a socket that somebody may get out of a message is counted (`Gained`), and when the survey is through, what
//! has gained one since it was met stays, and what that holds. Of the rest each had, when the survey was through, exactly the references
//! that were found: it was a circle then. And it stays one, for whoever could take something out of it would have to be in it.
//!
//! # On several
//!
//! A socket may also be held by other kernels, and a message may hold the stand-in of another kernel's socket. What a survey can't
//! decide alone, because it hangs on references that other kernels have, one kernel (that keeps the names) asks of all of them, and
//! puts together (round.rs). A stand-in is the same as its socket if it has as many references as the owner has counted for its
//! kernel; if not, some are on their way, and the socket stays. Then each kernel is asked which of those that nobody seems to reach
//! have gained a reference since it met them. All surveys were through before the first of these questions:
//!
//! ```text
//! K1         met, counted ----- through                        asked: the same
//! K2   met, counted ------------------------ through    asked: the same
//!                                                    ^ what has gained nothing was like that everywhere now
//! ```
//!
//! At that moment the rest had no other references than those of the rest. Of references under way there are three kinds. One that the
//! owner sends is in the owner's count, and not yet in the stand-in's. One of the owner's own files in a question to it is kept by the
//! asker's stand-in until the answer. And one that a third kernel hands on, of which the owner has not heard yet:
//!
//! ```text
//! K1: b's stand-in (1)       owner of b: K1 has 1         K2
//! -- FileRetain for K2 --.
//! -- the reference -------\---------------------------.
//! its descriptor is closed \                           \
//! survey: b is only         \                           \
//!  in a message              \ survey: K1 has 1          \
//!                             '-> K2 has 1                '-> a stand-in
//! ```
//!
//! So a kernel says that it is through only after those whose sockets it has listed have heard all that it had to tell them before
//! (`UnixFlush`): the word is there before the question, and has counted as a gain.

mod graph;
mod round;
mod survey;

pub(crate) use survey::Survey;

use super::NetNamespace;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
};
use graph::Pace;
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    Errno,
};
use messages::fs::SocketGraphPage;

/// So many sockets that hold others are not looked at when more come.
const FEW: usize = 64;

/// One kernel's part.
#[derive(Default)]
pub struct Circles {
    here: Lock<Occasions>,
    /// At the kernel that keeps the names.
    everywhere: Lock<Occasions>,
    /// Rounds begun; locked during one.
    rounds: AsyncLock<u64>,
    /// Of the round that is under way, and its number.
    survey: Lock<Option<(u64, Arc<Survey>)>>,
}

/// When to look again. A look costs what there is to look at, so that each must be preceded by that many occasions.
#[derive(Default)]
struct Occasions {
    since: usize,
    /// Somebody looks.
    looking: bool,
    again: bool,
    /// What the last look has left: so much costs the next one.
    stayed: usize,
}

impl Occasions {
    /// `enough` of them: is the caller to look?
    fn begin(&mut self, enough: bool) -> bool {
        self.again |= enough;
        if !self.again || self.looking {
            return false;
        }
        *self = Occasions { looking: true, stayed: self.stayed, ..Self::default() };
        true
    }

    /// The look is over; is another one wanted?
    fn end(&mut self, stayed: usize) -> bool {
        self.looking = false;
        self.stayed = stayed;
        self.begin(false)
    }
}

/// A socket has ended: others may have been held by its inbox alone.
pub(super) fn socket_ended(names: &Arc<NetNamespace>) {
    let Some(holders) = names.flight.holders() else { return };
    let look = {
        let mut here = names.circles.here.lock();
        here.since += 1;
        let enough = here.since * 2 >= holders;
        here.begin(enough)
    };
    if look {
        look_here(names);
    }
}

/// Descriptors were sent.
pub(super) fn sent(names: &Arc<NetNamespace>) {
    let holders = names.flight.holders().unwrap_or_default();
    let look = {
        let mut here = names.circles.here.lock();
        let enough = holders > FEW.max(2 * here.stayed);
        here.begin(enough)
    };
    if look {
        look_here(names);
    }
}

/// A kernel that has no others, as in tests, need not be asked to pause.
fn look_here(names: &Arc<NetNamespace>) {
    let looking = names.clone();
    let look = async move {
        loop {
            // No memory to look: the next occasion may find more.
            let _ = looking.survey_and_tell().await;
            let stayed = looking.flight.holders().unwrap_or_default();
            if !looking.circles.here.lock().end(stayed) {
                return;
            }
        }
    };
    match names.others() {
        Ok(others) => others.run(Box::pin(look)),
        Err(_) => {
            let done = pin!(look).poll(&mut Context::from_waker(Waker::noop()));
            debug_assert!(done.is_ready(), "without others it does not wait");
        }
    }
}

impl NetNamespace {
    /// There may be a circle over several kernels.
    fn suspect(self: &Arc<Self>) {
        let Ok((others, keeper)) = self.keeper() else { return };
        match others.me() == keeper {
            true => self.suspected(),
            false => others.suspect(keeper),
        }
    }

    /// At the kernel that keeps the names: one of the kernels suspects a circle.
    pub(crate) fn suspected(self: &Arc<Self>) {
        let look = {
            let mut everywhere = self.circles.everywhere.lock();
            everywhere.since += 1;
            let enough = everywhere.since * 2 >= everywhere.stayed;
            everywhere.begin(enough)
        };
        let (true, Ok(others)) = (look, self.others()) else { return };
        let names = self.clone();
        others.run(Box::pin(async move {
            // If it is given up, the next suspicion begins another one.
            while {
                let stayed = names.collect().await.unwrap_or_default();
                names.circles.everywhere.lock().end(stayed)
            } {}
        }));
    }

    /// Ends all circles of the machine, on the kernel that keeps the names; elsewhere, and where there are no others, the circles of this
    /// kernel. What it would cost to look again.
    pub async fn collect(&self) -> Result<usize> {
        match self.keeper() {
            Ok((others, keeper)) if others.me() == keeper => {
                // One after the other, for a kernel keeps one survey.
                let mut rounds = self.circles.rounds.lock().await;
                *rounds += 1;
                round::run(&*others, *rounds).await
            }
            _ => self.survey().await.map(|_| 0),
        }
    }

    /// Looks at this kernel; what it can't decide it tells of.
    async fn survey_and_tell(self: &Arc<Self>) -> Result<()> {
        let survey = self.survey().await?;
        let Ok(others) = self.others() else { return Ok(()) };
        if !survey.owners(&mut Pace::new(Some(others.spawner()))).await.is_empty() {
            self.suspect();
        }
        Ok(())
    }

    /// A part of what [`Self::survey`] can't decide alone; the first part makes a new survey.
    pub(crate) async fn survey_page(&self, number: u64, from: (u32, u32)) -> Result<SocketGraphPage> {
        let others = self.others()?;
        let mut pace = Pace::new(Some(others.spawner()));
        if from == (0, 0) {
            let survey = self.survey().await?;
            for owner in survey.owners(&mut pace).await.iter() {
                others.flush(owner).await?;
            }
            let before = self.circles.survey.lock().replace((number, Arc::new(survey)));
            drop(before);
        }
        self.surveyed(number)?.page(&*others, from, &mut pace).await
    }

    /// Nobody reaches these nodes of a survey.
    pub(crate) async fn empty(&self, number: u64, nodes: Vec<u32>) -> Result<()> {
        let others = self.others()?;
        self.surveyed(number)?.empty(&nodes, &mut Pace::new(Some(others.spawner()))).await;
        Ok(())
    }

    /// EAGAIN: it is another round, or a kernel has died.
    pub(crate) fn surveyed(&self, number: u64) -> Result<Arc<Survey>> {
        match &*self.circles.survey.lock() {
            Some((known, survey)) if *known == number => Ok(survey.clone()),
            _ => Err(Errno::EAGAIN),
        }
    }

    /// The round is over. None: whichever it is.
    pub(crate) fn forget_survey(&self, number: Option<u64>) {
        let mut survey = self.circles.survey.lock();
        let over = survey.take_if(|(known, _)| number.is_none_or(|number| number == *known));
        drop(survey);
        drop(over);
    }

    /// Ends what can be reached neither here nor from other kernels.
    async fn survey(&self) -> Result<Survey> {
        let others = self.others().ok();
        let mut pace = Pace::new(others.as_ref().map(|others| others.spawner()));
        let mut survey = Survey::new(self, others.as_deref(), &mut pace).await?;
        survey.end_unreached(&mut pace).await?;
        Ok(survey)
    }
}
