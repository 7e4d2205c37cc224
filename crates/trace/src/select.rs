//! Lists of events: names of points and of groups, `all`, `none`, and a name with `-` before it for "not this", separated by commas.

use crate::{Group, ALWAYS, POINTS};

/// A name in a list of events that is neither a point nor a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownEvent<'a>(pub &'a str);

fn points_of(name: &str) -> Option<u64> {
    let of = |wanted: &dyn Fn(&crate::PointInfo) -> bool| {
        POINTS.iter().filter(|info| wanted(info)).map(|info| info.point.bit()).sum::<u64>()
    };
    match name {
        "all" => Some(of(&|info| info.group != Group::Profile)),
        "none" => Some(0),
        _ => match Group::ALL.iter().find(|group| group.name() == name) {
            Some(&group) => Some(of(&|info| info.group == group)),
            None => Some(of(&|info| info.name == name)).filter(|&points| points != 0),
        },
    }
}

/// The points that a list means, as [`enable`](crate::enable) takes them. One that begins with `-` takes from all points.
pub fn select(list: &str) -> Result<u64, UnknownEvent<'_>> {
    let names = || list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let mut points = match names().next() {
        Some(name) if name.starts_with('-') => points_of("all").unwrap_or(0),
        _ => 0,
    };
    for name in names() {
        match name.strip_prefix('-') {
            Some(name) => points &= !points_of(name).ok_or(UnknownEvent(name))?,
            None => points |= points_of(name).ok_or(UnknownEvent(name))?,
        }
    }
    Ok(if points == 0 { 0 } else { points | ALWAYS })
}
