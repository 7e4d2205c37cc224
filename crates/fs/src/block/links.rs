//! Names below /dev/disk by which a volume can be found whatever it is called this time. On Linux udev makes them; here the kernel does, when it starts.

use super::Volume;
use crate::file::Frames;
use alloc::{format, string::String, sync::Arc, vec::Vec};
use ext4::Superblock;
use machine::PAGE_SIZE;

/// Where the superblock of ext4 is.
const SUPERBLOCK: usize = 1024;
const SUPERBLOCK_BYTES: usize = 1024;

/// All names of a volume: `disk/by-uuid/...`.
pub(super) async fn of(volume: &Arc<Volume>) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |by: &str, name: &str| {
        if !name.is_empty() {
            names.push(format!("disk/by-{by}/{}", escaped(name)));
        }
    };
    if let Some((uuid, label)) = file_system(volume).await {
        add("uuid", &uuid);
        add("label", &label);
    }
    let identity = volume.identity();
    add("partuuid", &identity.uuid);
    add("partlabel", &identity.label);
    let serial = &volume.device().limits().serial;
    if !serial.is_empty() {
        let serial = String::from_utf8_lossy(serial);
        match volume.partition() {
            Some((number, _)) => add("id", &format!("virtio-{serial}-part{number}")),
            None => add("id", &format!("virtio-{serial}")),
        }
    }
    names
}

/// UUID and label of the ext4 on a volume.
async fn file_system(volume: &Arc<Volume>) -> Option<(String, String)> {
    if volume.bytes() < PAGE_SIZE as u64 {
        return None;
    }
    let memory = &*volume.services().memory;
    let frame = volume.services().frame().ok()?;
    volume.read_into(0, Frames::new(memory, &[frame.frame()], PAGE_SIZE)).await.ok()?;
    let mut bytes = [0; SUPERBLOCK_BYTES];
    memory.read(frame.frame(), SUPERBLOCK, &mut bytes);
    let superblock = Superblock::parse(&bytes).ok()?;
    let mut uuid = String::new();
    for (at, byte) in superblock.uuid.iter().enumerate() {
        let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
        uuid += &format!("{dash}{byte:02x}");
    }
    let label = &bytes[0x78..0x88];
    let end = label.iter().position(|byte| *byte == 0).unwrap_or(label.len());
    Some((uuid, String::from_utf8_lossy(&label[..end]).into_owned()))
}

/// As udev writes what it does not want in a name (blkid_encode_string).
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        match letter {
            _ if !letter.is_ascii() || letter.is_ascii_alphanumeric() || "#+-.:=@_".contains(letter) => {
                text.push(letter)
            }
            _ => text += &format!("\\x{:02x}", letter as u32),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn labels_are_written_as_udev_does() {
        assert_eq!(super::escaped("a b/c\\d"), "a\\x20b\\x2fc\\x5cd");
        assert_eq!(super::escaped("Root-1_é"), "Root-1_é");
    }
}
