//! Writes an initramfs: a cpio archive in the "newc" form (Linux, Documentation/driver-api/early-userspace/
//! buffer-format.rst). By hand, because a few entries are all there is.

const DIRECTORY: u32 = 0o040755;
const PROGRAM: u32 = 0o100755;
const LINK: u32 = 0o120777;
const CHARACTER_DEVICE: u32 = 0o020600;

pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// `/init`, places to mount proc, sysfs and devtmpfs, and the console that Linux wants to open for it.
    pub fn with_init(init: &[u8]) -> Archive {
        let mut archive = Archive { bytes: Vec::new(), inode: 0 };
        for name in ["dev", "proc", "sys", "tmp"] {
            archive.entry(name, DIRECTORY, (0, 0), &[]);
        }
        archive.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
        archive.entry("init", PROGRAM, (0, 0), init);
        archive
    }

    pub fn directory(mut self, name: &str) -> Archive {
        self.entry(name, DIRECTORY, (0, 0), &[]);
        self
    }

    pub fn file(mut self, name: &str, mode: u32, data: &[u8]) -> Archive {
        self.entry(name, 0o100000 | mode, (0, 0), data);
        self
    }

    pub fn link(mut self, name: &str, target: &str) -> Archive {
        self.entry(name, LINK, (0, 0), target.as_bytes());
        self
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.inode += 1;
        let (links, name_length) = (1, name.len() as u32 + 1);
        let size = data.len() as u32;
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_length, 0];
        self.bytes.extend_from_slice(b"070701");
        fields.iter().for_each(|field| self.bytes.extend_from_slice(format!("{field:08X}").as_bytes()));
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;
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
        let archive = Archive::with_init(b"12345").file("text", 0o644, b"abc").link("link", "text").finish();
        list.stdin.take().unwrap().write_all(&archive).unwrap();
        let listed = String::from_utf8(list.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(listed, "dev\nproc\nsys\ntmp\ndev/console\ninit\ntext\nlink\n");
    }
}
