//! The initramfs of the boot benchmark: a cpio archive in the "newc" form (Linux, Documentation/driver-api/
//! early-userspace/buffer-format.rst), written by hand because two entries are all there is.

const DIRECTORY: u32 = 0o040755;
const PROGRAM: u32 = 0o100755;
const CHARACTER_DEVICE: u32 = 0o020600;

/// `/init`, and the console that Linux wants to open for it.
pub fn with_init(init: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    entry(&mut archive, 1, "dev", DIRECTORY, (0, 0), &[]);
    entry(&mut archive, 2, "dev/console", CHARACTER_DEVICE, (5, 1), &[]);
    entry(&mut archive, 3, "init", PROGRAM, (0, 0), init);
    entry(&mut archive, 0, "TRAILER!!!", 0, (0, 0), &[]);
    archive
}

fn entry(archive: &mut Vec<u8>, inode: u32, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
    let (links, name_length) = (1, name.len() as u32 + 1);
    let fields = [inode, mode, 0, 0, links, 0, data.len() as u32, 0, 0, device.0, device.1, name_length, 0];
    archive.extend_from_slice(b"070701");
    fields.iter().for_each(|field| archive.extend_from_slice(format!("{field:08X}").as_bytes()));
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(data);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn busybox_cpio_reads_it() {
        if !std::path::Path::new("/bin/busybox").exists() {
            return; // ./cob installs it; on another machine there is nothing to ask
        }
        let mut list = Command::new("/bin/busybox")
            .args(["cpio", "-t"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        list.stdin.take().unwrap().write_all(&super::with_init(b"12345")).unwrap();
        let listed = list.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), "dev\ndev/console\ninit\n");
    }
}
