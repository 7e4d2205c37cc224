//! SIOCETHTOOL (linux/ethtool.h): what the driver of `lo` tells.

use super::InterfaceRequest;
use crate::call::Call;
use fs::network::lo;
use machine::{errno::Result, Errno, UserAddr};

const GET_LINK: u32 = 0x0a;
const GET_RECEIVE_CHECKSUM: u32 = 0x14;
const GET_TRANSMIT_CHECKSUM: u32 = 0x16;
const GET_SCATTER_GATHER: u32 = 0x18;
const GET_TCP_SEGMENTATION: u32 = 0x1e;
const GET_PERMANENT_ADDRESS: u32 = 0x20;
const GET_SEGMENTATION: u32 = 0x23;
const GET_FLAGS: u32 = 0x25;
const GET_RECEIVE_SEGMENTATION: u32 = 0x2b;
const GET_TIMESTAMPING: u32 = 0x41;

/// What anybody may ask for; all else needs CAP_NET_ADMIN.
const FOR_ANYBODY: [u32; 36] = [
    0x01, 0x03, 0x07, 0x0a, 0x0e, 0x10, 0x12, 0x14, 0x16, 0x18, 0x1b, 0x1d, 0x1e, 0x20, 0x21, 0x23, 0x25, 0x27, 0x29,
    0x2b, 0x2d, 0x2e, 0x2f, 0x30, 0x37, 0x38, 0x3a, 0x3c, 0x41, 0x44, 0x46, 0x48, 0x4a, 0x4c, 0x4e, 0x50,
];

/// The only error here that has no name in errno.h.
const ETOOSMALL: Errno = Errno(525);

pub(super) async fn answer(call: &Call<'_>, asked: InterfaceRequest, admin: bool) -> Result<u64> {
    let at = asked.pointer();
    let command: u32 = call.get(at).await?;
    asked.check_device()?;
    if !admin && !FOR_ANYBODY.contains(&command) {
        return Err(Errno::EPERM);
    }
    match command {
        GET_LINK
        | GET_RECEIVE_CHECKSUM
        | GET_TRANSMIT_CHECKSUM
        | GET_SCATTER_GATHER
        | GET_TCP_SEGMENTATION
        | GET_SEGMENTATION
        | GET_RECEIVE_SEGMENTATION => call.put(at, &[command, 1]).await?,
        GET_FLAGS => call.put(at, &[command, 0]).await?,
        GET_PERMANENT_ADDRESS => permanent_address(call, at).await?,
        GET_TIMESTAMPING => {
            // By software only: SOF_TIMESTAMPING_TX_SOFTWARE, _RX_SOFTWARE, _SOFTWARE, and no clock of hardware.
            let mut answer = [0u32; 11];
            answer[..3].copy_from_slice(&[command, 0x1a, u32::MAX]);
            call.put(at, &answer).await?;
        }
        _ => return Err(Errno::EOPNOTSUPP),
    }
    Ok(0)
}

/// `struct ethtool_perm_addr`: there must be room for the address, which is all zeroes.
async fn permanent_address(call: &Call<'_>, at: UserAddr) -> Result<()> {
    let [command, room]: [u32; 2] = call.get(at).await?;
    if (room as usize) < lo::HARDWARE_LENGTH {
        return Err(ETOOSMALL);
    }
    call.put(at, &[command, lo::HARDWARE_LENGTH as u32]).await?;
    call.put(at.add(8), &[0u8; lo::HARDWARE_LENGTH]).await
}
