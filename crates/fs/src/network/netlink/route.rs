//! NETLINK_ROUTE (man 7 rtnetlink): the interface, its addresses, its routes, and rules. Everything else is empty or not there, and
//! nothing can be changed: EPERM, and EOPNOTSUPP for who may.

use super::{
    link::{self, AF_INET, AF_INET6},
    routes,
    wire::{Answers, Request},
};
use crate::network::lo;
use core::ffi::CStr;
use linux_raw_sys::netlink::*;
use machine::{errno::Result, Errno};

/// The types of messages are in fours: new, delete, get, set.
const KIND: u16 = 3;
const GET: u16 = 2;
/// The last type of Linux's (RTM_GETTUNNEL and its kin).
const LAST: u16 = 123;

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const SET_LINK: u16 = 19;
const GET_ADDRESS: u16 = 22;
const GET_ROUTE: u16 = 26;
const GET_NEIGHBOUR: u16 = 30;
const GET_RULE: u16 = 34;
const GET_QDISC: u16 = 38;
const GET_CLASS: u16 = 42;
const GET_FILTER: u16 = 46;
const GET_NAMESPACE: u16 = 90;
const GET_CHAIN: u16 = 102;
/// `struct ifaddrmsg`.
const ADDRESS: usize = 8;
const AF_BRIDGE: u8 = 7;
const NEW_ADDRESS: u32 = 20;
const NEW_QDISC: u32 = 36;
const IFA_PROTO: u32 = 11;
const IFAPROT_KERNEL_LO: u8 = 1;
const SCOPE_HOST: u8 = 254;
const FOR_EVER: [u32; 2] = [u32::MAX; 2];

/// Who asks, and how.
#[derive(Clone, Copy)]
pub struct Asker {
    /// CAP_NET_ADMIN.
    pub admin: bool,
    pub uid: u32,
    /// NETLINK_GET_STRICT_CHK: structures and attributes of a request for a list say what is to be listed.
    pub strict: bool,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// A list, whose end is to be told.
    List,
    /// One thing.
    One,
}

/// Whether the request asks for a list (any of NLM_F_DUMP).
pub fn asks_for_list(request: &Request<'_>) -> bool {
    u32::from(request.flags) & NLM_F_DUMP != 0
}

/// Answers a request. (Linux: rtnetlink_rcv_msg.)
pub fn answer(request: &Request<'_>, asker: Asker, answers: &mut Answers) -> Result<Answered> {
    if request.kind > LAST {
        return Err(Errno::EOPNOTSUPP);
    }
    if request.body.is_empty() {
        return Ok(Answered::One);
    }
    if request.kind & KIND != GET {
        return change(request, asker).map(|()| Answered::One);
    }
    match asks_for_list(request) {
        true => {
            answers.flags |= NLM_F_MULTI;
            list(request, asker, answers).map(|()| Answered::List)
        }
        false => one(request, asker, answers).map(|()| Answered::One),
    }
}

/// EPERM; EOPNOTSUPP for who may, unless all is as the request wants it already: `ip link set lo up`.
fn change(request: &Request<'_>, asker: Asker) -> Result<()> {
    if !asker.admin {
        return Err(Errno::EPERM);
    }
    if ![NEW_LINK, SET_LINK].contains(&request.kind) || u32::from(request.flags) & NLM_F_CREATE != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    is_lo(request)?;
    // Flags, and which of them are meant.
    let wanted = request.word(8) ^ lo::ALL_FLAGS;
    let same = |(kind, value): (u16, &[u8])| match u32::from(kind) {
        kind if kind == IFLA_IFNAME as u32 => until_nul(value) == lo::NAME.as_bytes(),
        kind if kind == IFLA_MTU as u32 => value == lo::MTU.to_ne_bytes(),
        kind if kind == IFLA_TXQLEN as u32 => value == lo::QUEUE_LENGTH.to_ne_bytes(),
        kind => kind == IFLA_EXT_MASK as u32,
    };
    match wanted & request.word(12) == 0 && request.attributes(link::STRUCTURE).all(same) {
        true => Ok(()),
        false => Err(Errno::EOPNOTSUPP),
    }
}

fn list(request: &Request<'_>, asker: Asker, answers: &mut Answers) -> Result<()> {
    match (request.kind, request.byte(0)) {
        (GET_LINK, AF_INET6) => link::put_for_inet6(answers),
        (GET_LINK, AF_BRIDGE) => {}
        (GET_LINK, _) => links(request, asker, answers)?,
        (GET_ADDRESS, family) => addresses(request, family, asker, answers)?,
        (GET_ROUTE, family) => routes::list(request, family, asker, answers)?,
        (GET_RULE, family) => routes::rules(family, answers)?,
        (GET_QDISC, _) => qdisc(answers),
        (GET_NEIGHBOUR | GET_CLASS | GET_FILTER | GET_NAMESPACE | GET_CHAIN, _) => {}
        _ => return Err(Errno::EOPNOTSUPP),
    }
    Ok(())
}

fn one(request: &Request<'_>, asker: Asker, answers: &mut Answers) -> Result<()> {
    match (request.kind, request.byte(0)) {
        (GET_LINK, _) => one_link(request, answers),
        (GET_ADDRESS, AF_INET6) => one_address(request, answers),
        (GET_ROUTE, family @ (AF_INET | AF_INET6)) => routes::one(request, family, asker, answers),
        (GET_NEIGHBOUR, _) => Err(Errno::ENOENT),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Only what a strict request may ask for is looked at: a link's master or kind, which `lo` does not have.
fn links(request: &Request<'_>, asker: Asker, answers: &mut Answers) -> Result<()> {
    let structure = request.body.get(1..link::STRUCTURE);
    if asker.strict && structure.is_none_or(|rest| rest.iter().any(|&byte| byte != 0)) {
        return Err(Errno::EINVAL);
    }
    let attributes = || request.attributes(link::STRUCTURE);
    let known = [IFLA_EXT_MASK as u32, IFLA_MASTER as u32, IFLA_LINKINFO as u32];
    if asker.strict && attributes().any(|(kind, _)| !known.contains(&kind.into())) {
        return Err(Errno::EINVAL);
    }
    let master = attributes().find(IFLA_MASTER as u32).is_some_and(|index| index != [0; 4]);
    if !master && attributes().find(IFLA_LINKINFO as u32).is_none() {
        link::put(answers, mask(request));
    }
    Ok(())
}

/// IFLA_EXT_MASK.
fn mask(request: &Request<'_>) -> u32 {
    request.attributes(link::STRUCTURE).find(IFLA_EXT_MASK as u32).map_or(0, |mask| super::wire::word(mask, 0))
}

fn one_link(request: &Request<'_>, answers: &mut Answers) -> Result<()> {
    is_lo(request)?;
    link::put(answers, mask(request));
    Ok(())
}

/// Whether a request means `lo`, by its number or its name.
fn is_lo(request: &Request<'_>) -> Result<()> {
    if request.body.len() < link::STRUCTURE {
        return Err(Errno::EINVAL);
    }
    let name = |kind| request.attributes(link::STRUCTURE).find(kind).map(until_nul);
    let index = request.word(4);
    let named = name(IFLA_IFNAME as u32).or_else(|| name(IFLA_ALT_IFNAME as u32));
    match named {
        _ if index == lo::INDEX => Ok(()),
        _ if index != 0 => Err(Errno::ENODEV),
        Some(name) if name == lo::NAME.as_bytes() => Ok(()),
        Some(_) => Err(Errno::ENODEV),
        // Without both a request for something is none, and one that would change something finds nothing.
        None if request.kind == GET_LINK => Err(Errno::EINVAL),
        None => Err(Errno::ENODEV),
    }
}

fn until_nul(name: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(name).map_or(name, CStr::to_bytes)
}

/// ENODEV: a strict request asks for those of an interface that is not there.
fn addresses(request: &Request<'_>, family: u8, asker: Asker, answers: &mut Answers) -> Result<()> {
    let index = request.word(4);
    if asker.strict {
        if request.body.len() < ADDRESS || request.body[1..4] != [0; 3] {
            return Err(Errno::EINVAL);
        }
        if index != 0 {
            answers.flags |= NLM_F_DUMP_FILTERED;
        }
        if index > lo::INDEX {
            return Err(Errno::ENODEV);
        }
    }
    if [0, AF_INET].contains(&family) {
        put_address4(answers);
    }
    if [0, AF_INET6].contains(&family) {
        put_address6(answers);
    }
    Ok(())
}

fn address_structure(family: u8, prefix: u8) -> [u8; ADDRESS] {
    let [a, b, c, d] = lo::INDEX.to_ne_bytes();
    [family, prefix, IFA_F_PERMANENT as u8, SCOPE_HOST, a, b, c, d]
}

/// `struct ifa_cacheinfo`: valid and preferred for ever, made and changed at the start.
fn put_lifetime(answers: &mut Answers) {
    answers.nest(IFA_CACHEINFO as u32, |answers| {
        FOR_EVER.iter().chain(&[0; 2]).for_each(|word| answers.put(&word.to_ne_bytes()));
    });
}

fn put_address4(answers: &mut Answers) {
    answers.message(NEW_ADDRESS, &address_structure(AF_INET, lo::PREFIX), |answers| {
        answers.attribute(IFA_ADDRESS as u32, &lo::ADDRESS.octets());
        answers.attribute(IFA_LOCAL as u32, &lo::ADDRESS.octets());
        answers.attribute(IFA_LABEL as u32, b"lo\0");
        answers.number(IFA_FLAGS as u32, IFA_F_PERMANENT);
        put_lifetime(answers);
    });
}

fn put_address6(answers: &mut Answers) {
    answers.message(NEW_ADDRESS, &address_structure(AF_INET6, lo::PREFIX6), |answers| {
        answers.attribute(IFA_ADDRESS as u32, &lo::ADDRESS6.octets());
        put_lifetime(answers);
        answers.number(IFA_FLAGS as u32, IFA_F_PERMANENT);
        answers.attribute(IFA_PROTO, &[IFAPROT_KERNEL_LO]);
    });
}

fn one_address(request: &Request<'_>, answers: &mut Answers) -> Result<()> {
    let attributes = || request.attributes(ADDRESS);
    let local = attributes().find(IFA_LOCAL as u32);
    let asked = local.or_else(|| attributes().find(IFA_ADDRESS as u32)).ok_or(Errno::EINVAL)?;
    if asked != lo::ADDRESS6.octets() || request.word(4) > lo::INDEX {
        return Err(Errno::EADDRNOTAVAIL);
    }
    put_address6(answers);
    Ok(())
}

/// `struct tcmsg`: family, index, handle, parent (TC_H_ROOT), users. `lo` has none that queues.
fn qdisc(answers: &mut Answers) {
    let words = [0, lo::INDEX, 0, u32::MAX, 2];
    let mut structure = [0; 20];
    for (to, word) in structure.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    answers.message(NEW_QDISC, &structure, |answers| {
        answers.attribute(TCA_KIND as u32, b"noqueue\0");
        answers.attribute(TCA_HW_OFFLOAD as u32, &[0]);
        answers.nest(TCA_STATS2 as u32, |answers| {
            answers.attribute(TCA_STATS_BASIC, &[0; 16]);
            answers.attribute(TCA_STATS_QUEUE, &[0; 20]);
        });
        answers.attribute(TCA_STATS as u32, &[0; 40]);
    });
}

const TCA_STATS_BASIC: u32 = 1;
const TCA_STATS_QUEUE: u32 = 3;
