//! Routes and rules. The main table is empty; the local one has the addresses of `lo` and what follows from them.

use super::{
    link::{AF_INET, AF_INET6},
    route::Asker,
    wire::{word, Answers, Request},
};
use crate::network::lo;
use core::net::{Ipv4Addr, Ipv6Addr};
use linux_raw_sys::netlink::{rtattr_type_t::*, *};
use machine::{errno::Result, Errno};

/// `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type, then flags.
const STRUCTURE: usize = 12;
const NEW_ROUTE: u32 = 24;
const NEW_RULE: u32 = 32;
const TABLE_DEFAULT: u8 = 253;
const TABLE_MAIN: u8 = 254;
const TABLE_LOCAL: u8 = 255;
/// RTPROT_KERNEL.
const PROTOCOL: u8 = 2;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const SCOPE_HOST: u8 = 254;
const LOCAL: u8 = 2;
const BROADCAST: u8 = 3;
/// RTM_F_CLONED: what a lookup found; in a request, only what lookups have made, which is nothing.
const CLONED: u32 = 0x200;
/// RTM_F_PREFIX: only what routers have announced, which is nothing either.
const PREFIX: u32 = 0x800;
/// Of a found route (RTCF_LOCAL, RTCF_BROADCAST).
const TO_LOCAL: u32 = 0x8000_0000;
const TO_BROADCAST: u32 = 0x1000_0000;
/// Of rules (FRA_*), and what they do: look into a table.
const FRA_PRIORITY: u32 = 6;
const FRA_SUPPRESS_PREFIXLEN: u32 = 14;
const FRA_TABLE: u32 = 15;
const FRA_PROTOCOL: u32 = 21;
const TO_TABLE: u8 = 1;

/// Destination, its length, scope and type.
const ROUTES: [(Ipv4Addr, u8, u8, u8); 3] = [
    (lo::NETWORK, lo::PREFIX, SCOPE_HOST, LOCAL),
    (lo::ADDRESS, 32, SCOPE_HOST, LOCAL),
    (lo::BROADCAST, 32, SCOPE_LINK, BROADCAST),
];

/// What a strict request asks for.
#[derive(Default, PartialEq, Eq)]
struct Filter {
    table: u32,
    protocol: u8,
    kind: u8,
    index: u32,
    flags: u32,
}

impl Filter {
    fn of(request: &Request<'_>) -> Result<Filter> {
        let flags = request.word(8);
        let unused = [1, 2, 3, 6].map(|at| request.byte(at));
        if request.body.len() < STRUCTURE || unused != [0; 4] || flags & !(CLONED | PREFIX) != 0 {
            return Err(Errno::EINVAL);
        }
        let (table, protocol, kind) = (request.byte(4).into(), request.byte(5), request.byte(7));
        let mut filter = Filter { table, protocol, kind, index: 0, flags };
        for (kind, value) in request.attributes(STRUCTURE) {
            match u32::from(kind) {
                kind if kind == RTA_TABLE as u32 => filter.table = word(value, 0),
                kind if kind == RTA_OIF as u32 => filter.index = word(value, 0),
                _ => return Err(Errno::EINVAL),
            }
        }
        if filter.index > lo::INDEX {
            return Err(Errno::ENODEV);
        }
        Ok(filter)
    }

    fn takes(&self, kind: u8) -> bool {
        [0, TABLE_LOCAL.into()].contains(&self.table)
            && [0, PROTOCOL].contains(&self.protocol)
            && [0, kind].contains(&self.kind)
            && self.flags == 0
    }
}

/// Each message of the answer to a strict request says that it is a selection; that nothing was left out the end tells.
pub fn list(request: &Request<'_>, family: u8, asker: Asker, answers: &mut Answers) -> Result<()> {
    let filter = match asker.strict {
        true => Filter::of(request)?,
        false => Filter { flags: request.word(8) & PREFIX, ..Filter::default() },
    };
    if asker.strict {
        answers.flags |= NLM_F_DUMP_FILTERED;
    }
    let tables = [0, TABLE_MAIN.into(), TABLE_LOCAL.into()];
    if family != 0 && !tables.contains(&filter.table) {
        return Err(Errno::ENOENT);
    }
    if [0, AF_INET].contains(&family) {
        for (to, length, scope, kind) in ROUTES.into_iter().filter(|route| filter.takes(route.3)) {
            let structure = structure(AF_INET, length, (TABLE_LOCAL, PROTOCOL, scope, kind), 0);
            answers.message(NEW_ROUTE, &structure, |answers| {
                answers.number(RTA_TABLE as u32, TABLE_LOCAL.into());
                answers.attribute(RTA_DST as u32, &to.octets());
                answers.attribute(RTA_PREFSRC as u32, &lo::ADDRESS.octets());
                answers.number(RTA_OIF as u32, lo::INDEX);
            });
        }
    }
    if [0, AF_INET6].contains(&family) && filter.takes(LOCAL) {
        put_route6(answers, false);
    }
    if filter == Filter::default() {
        answers.flags &= !NLM_F_DUMP_FILTERED;
    }
    Ok(())
}

fn structure(family: u8, length: u8, (table, protocol, scope, kind): (u8, u8, u8, u8), flags: u32) -> [u8; STRUCTURE] {
    let [a, b, c, d] = flags.to_ne_bytes();
    [family, length, 0, 0, table, protocol, scope, kind, a, b, c, d]
}

/// The one route of IPv6; `found`: as the answer to a lookup.
fn put_route6(answers: &mut Answers, found: bool) {
    let mut structure = structure(AF_INET6, lo::PREFIX6, (TABLE_LOCAL, PROTOCOL, SCOPE_UNIVERSE, LOCAL), 0);
    if found {
        structure[2] = 128;
    }
    answers.message(NEW_ROUTE, &structure, |answers| {
        answers.number(RTA_TABLE as u32, TABLE_LOCAL.into());
        answers.attribute(RTA_DST as u32, &lo::ADDRESS6.octets());
        if found {
            answers.attribute(RTA_SRC as u32, &Ipv6Addr::UNSPECIFIED.octets());
            answers.attribute(RTA_PREFSRC as u32, &lo::ADDRESS6.octets());
        }
        answers.number(RTA_PRIORITY as u32, 0);
        answers.number(RTA_OIF as u32, lo::INDEX);
        put_use(answers, if found { 2 } else { 0 });
        answers.attribute(RTA_PREF as u32, &[0]);
    });
}

/// `struct rta_cacheinfo`: how many use it; nothing else is known.
fn put_use(answers: &mut Answers, users: u32) {
    answers.nest(RTA_CACHEINFO as u32, |answers| {
        answers.put(&users.to_ne_bytes());
        answers.put(&[0; 28]);
    });
}

/// Which way a packet to a destination would go. ENETUNREACH: none, for it would leave the machine.
pub fn one(request: &Request<'_>, family: u8, asker: Asker, answers: &mut Answers) -> Result<()> {
    if request.body.len() < STRUCTURE {
        return Err(Errno::EINVAL);
    }
    let to = request.attributes(STRUCTURE).find(RTA_DST as u32);
    if family == AF_INET6 {
        return match to {
            Some(to) if to == lo::ADDRESS6.octets() => {
                put_route6(answers, true);
                Ok(())
            }
            _ => Err(Errno::ENETUNREACH),
        };
    }
    // Without a destination, this host.
    let to = match to.map(<[u8; 4]>::try_from) {
        Some(Ok(octets)) => Ipv4Addr::from(octets),
        Some(Err(_)) => return Err(Errno::EINVAL),
        None => Ipv4Addr::UNSPECIFIED,
    };
    let (kind, flags) = match to {
        lo::BROADCAST => (BROADCAST, CLONED | TO_LOCAL | TO_BROADCAST),
        to if to.is_loopback() || to.is_unspecified() => (LOCAL, CLONED | TO_LOCAL),
        _ => return Err(Errno::ENETUNREACH),
    };
    let structure = structure(AF_INET, 32, (TABLE_MAIN, 0, SCOPE_UNIVERSE, kind), flags);
    answers.message(NEW_ROUTE, &structure, |answers| {
        answers.number(RTA_TABLE as u32, TABLE_MAIN.into());
        answers.attribute(RTA_DST as u32, &to.octets());
        answers.number(RTA_OIF as u32, lo::INDEX);
        answers.attribute(RTA_PREFSRC as u32, &lo::ADDRESS.octets());
        answers.number(RTA_UID as u32, asker.uid);
        put_use(answers, 2);
    });
    Ok(())
}

/// Which tables are looked into, in order. EAFNOSUPPORT: a family without rules.
pub fn rules(family: u8, answers: &mut Answers) -> Result<()> {
    const ALL: [(u8, u32); 3] = [(TABLE_LOCAL, 0), (TABLE_MAIN, 32766), (TABLE_DEFAULT, 32767)];
    if ![0, AF_INET, AF_INET6].contains(&family) {
        return Err(Errno::EAFNOSUPPORT);
    }
    let both = [(AF_INET, &ALL[..]), (AF_INET6, &ALL[..2])];
    for (of, rules) in both.into_iter().filter(|(of, _)| [0, *of].contains(&family)) {
        for &(table, priority) in rules {
            let structure = structure(of, 0, (table, 0, 0, TO_TABLE), 0);
            answers.message(NEW_RULE, &structure, |answers| {
                answers.number(FRA_TABLE, table.into());
                answers.number(FRA_SUPPRESS_PREFIXLEN, u32::MAX);
                answers.attribute(FRA_PROTOCOL, &[PROTOCOL]);
                if priority != 0 {
                    answers.number(FRA_PRIORITY, priority);
                }
            });
        }
    }
    Ok(())
}
