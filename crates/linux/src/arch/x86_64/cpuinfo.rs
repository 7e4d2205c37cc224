//! /proc/cpuinfo on x86-64: what CPUID says, in Linux's words (arch/x86/kernel/cpu/proc.c). All CPUs of a
//! machine are taken to be alike.

use alloc::{string::String, vec::Vec};
use core::fmt::Write;
use machine::{Cpu, CpuId};

/// Appends formatted text. A String takes everything.
macro_rules! put {
    ($text:expr, $($argument:tt)*) => { $text.write_fmt(format_args!($($argument)*)).expect("a String takes everything") };
}

/// Registers of CPUID.
const EAX: usize = 0;
const EBX: usize = 1;
const ECX: usize = 2;
const EDX: usize = 3;

/// Leaf, subleaf, register, and Linux's names of its bits from bit 0 on; `-`: not shown.
type Word = (u32, u32, usize, &'static str);

const WORDS: [Word; 10] = [
    (1, 0, EDX, "fpu vme de pse tsc msr pae mce cx8 apic - sep mtrr pge mca cmov pat pse36 pn clflush - dts acpi mmx fxsr sse sse2 ss ht tm ia64 pbe"),
    (0x8000_0001, 0, EDX, "- - - - - - - - - - - syscall - - - - - - - mp nx - mmxext - - fxsr_opt pdpe1gb rdtscp - lm 3dnowext 3dnow"),
    (1, 0, ECX, "pni pclmulqdq dtes64 monitor ds_cpl vmx smx est tm2 ssse3 cid sdbg fma cx16 xtpr pdcm - pcid dca sse4_1 sse4_2 x2apic movbe popcnt tsc_deadline_timer aes xsave - avx f16c rdrand hypervisor"),
    (0x8000_0001, 0, ECX, "lahf_lm cmp_legacy svm extapic cr8_legacy abm sse4a misalignsse 3dnowprefetch osvw ibs xop skinit wdt - lwp fma4 tce - nodeid_msr - tbm topoext perfctr_core perfctr_nb - bpext ptsc perfctr_llc mwaitx"),
    (7, 0, EBX, "fsgsbase tsc_adjust sgx bmi1 hle avx2 - smep bmi2 erms invpcid rtm cqm - mpx rdt_a avx512f avx512dq rdseed adx smap avx512ifma - clflushopt clwb intel_pt avx512pf avx512er avx512cd sha_ni avx512bw avx512vl"),
    (0xd, 1, EAX, "xsaveopt xsavec xgetbv1 xsaves"),
    (0x8000_0008, 0, EBX, "clzero irperf xsaveerptr - rdpru - - - - wbnoinvd"),
    (6, 0, EAX, "dtherm ida arat - pln - pts hwp hwp_notify hwp_act_window hwp_epp hwp_pkg_req"),
    (7, 0, ECX, "- avx512vbmi umip pku ospke waitpkg avx512_vbmi2 - gfni vaes vpclmulqdq avx512_vnni avx512_bitalg tme avx512_vpopcntdq - la57 - - - - - rdpid - bus_lock_detect cldemote - movdiri movdir64b enqcmd"),
    (7, 0, EDX, "- - avx512_4vnniw avx512_4fmaps fsrm - - - avx512_vp2intersect - md_clear - - - serialize - tsxldtrk - pconfig arch_lbr ibt - amx_bf16 avx512_fp16 amx_tile amx_int8 - - flush_l1d arch_capabilities"),
];

/// What is the same for all CPUs.
struct Description {
    pub vendor: String,
    pub family: u32,
    pub model: u32,
    pub stepping: u32,
    pub name: String,
    pub khz: u64,
    pub levels: u32,
    pub flags: Vec<&'static str>,
    pub line_bytes: u32,
    pub cache_kib: u32,
    pub physical_bits: u32,
    pub virtual_bits: u32,
}

impl Description {
    /// Asks through `identify`, which is CPUID.
    pub fn new(identify: &dyn Fn(u32, u32) -> [u32; 4], khz: u64) -> Self {
        let basic = identify(0, 0);
        let extended = identify(0x8000_0000, 0)[EAX];
        let known = |leaf: u32| if leaf >= 0x8000_0000 { leaf <= extended } else { leaf <= basic[EAX] };
        let ask = |leaf, sub| if known(leaf) { identify(leaf, sub) } else { [0; 4] };
        let text = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            String::from(String::from_utf8_lossy(&bytes[..end]).trim())
        };
        let version = ask(1, 0);
        let (base_family, base_model) = (version[EAX] >> 8 & 15, version[EAX] >> 4 & 15);
        let family = if base_family == 15 { base_family + (version[EAX] >> 20 & 0xff) } else { base_family };
        let model = if base_family >= 6 { base_model | version[EAX] >> 12 & 0xf0 } else { base_model };
        let mut name = Vec::new();
        for leaf in 0x8000_0002..=0x8000_0004 {
            name.extend(ask(leaf, 0));
        }
        let mut flags = Vec::new();
        for (leaf, sub, register, names) in WORDS {
            let word = ask(leaf, sub)[register];
            flags.extend(
                names
                    .split(' ')
                    .enumerate()
                    .filter(|(bit, name)| word >> bit & 1 == 1 && *name != "-")
                    .map(|(_, name)| name),
            );
        }
        let sizes = ask(0x8000_0008, 0)[EAX];
        Description {
            vendor: text(&[basic[EBX], basic[EDX], basic[ECX]]),
            family,
            model,
            stepping: version[EAX] & 15,
            name: text(&name),
            khz,
            levels: basic[EAX],
            flags,
            line_bytes: (version[EBX] >> 8 & 0xff) * 8,
            cache_kib: ask(0x8000_0006, 0)[ECX] >> 16,
            physical_bits: if sizes == 0 { 36 } else { sizes & 0xff },
            virtual_bits: if sizes == 0 { 48 } else { sizes >> 8 & 0xff },
        }
    }

    pub fn of(cpu: &dyn Cpu) -> Self {
        Self::new(&|leaf, sub| cpu.identify(leaf, sub), cpu.cycle_rate())
    }
}

/// The text of the file.
pub(crate) fn cpuinfo(cpu: &dyn Cpu, cpus: &[CpuId]) -> String {
    print(&Description::of(cpu), cpus)
}

/// Every CPU is a socket of its own, as `-smp N` of QEMU has it.
fn print(cpu: &Description, cpus: &[CpuId]) -> String {
    let mut text = String::new();
    let name = if cpu.name.is_empty() { "unknown" } else { &cpu.name };
    for CpuId(number) in cpus {
        put!(text, "processor\t: {number}\nvendor_id\t: {}\ncpu family\t: {}\n", cpu.vendor, cpu.family);
        put!(text, "model\t\t: {}\nmodel name\t: {name}\nstepping\t: {}\n", cpu.model, cpu.stepping);
        if cpu.khz > 0 {
            put!(text, "cpu MHz\t\t: {}.{:03}\n", cpu.khz / 1000, cpu.khz % 1000);
        }
        if cpu.cache_kib > 0 {
            put!(text, "cache size\t: {} KB\n", cpu.cache_kib);
        }
        put!(text, "physical id\t: {number}\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\n");
        put!(text, "apicid\t\t: {number}\ninitial apicid\t: {number}\n");
        put!(text, "fpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {}\nwp\t\t: yes\nflags\t\t:", cpu.levels);
        for flag in &cpu.flags {
            put!(text, " {flag}");
        }
        put!(text, "\nbugs\t\t:\nbogomips\t: {}.{:02}\n", cpu.khz / 500, cpu.khz / 5 % 100);
        put!(text, "clflush size\t: {0}\ncache_alignment\t: {0}\n", cpu.line_bytes);
        put!(
            text,
            "address sizes\t: {} bits physical, {} bits virtual\npower management:\n\n",
            cpu.physical_bits,
            cpu.virtual_bits
        );
    }
    text
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn host() -> String {
        std::fs::read_to_string("/proc/cpuinfo").expect("the host has /proc")
    }

    fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|word| word.trim() == name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    }

    fn here() -> Description {
        let ask = |leaf, sub| {
            let answer = core::arch::x86_64::__cpuid_count(leaf, sub);
            [answer.eax, answer.ebx, answer.ecx, answer.edx]
        };
        Description::new(&ask, 2_596_120)
    }

    #[test]
    fn says_of_the_hosts_cpu_what_the_host_says() {
        let (host, own) = (host(), print(&here(), &[CpuId(0)]));
        for name in ["vendor_id", "cpu family", "model", "model name", "stepping", "cpuid level", "clflush size"] {
            assert_eq!(field(&own, name), field(&host, name), "{name}");
        }
    }

    #[test]
    fn flags_have_the_hosts_names() {
        let host = host();
        let theirs: Vec<&str> = field(&host, "flags").expect("flags").split(' ').collect();
        // Linux hides some that CPUID has, never the other way round for those a program asks for.
        let own = here().flags;
        for name in ["fpu", "sse2", "lm", "syscall", "nx", "pni", "ssse3", "avx2", "fsgsbase", "erms", "umip", "rdpid"]
        {
            assert_eq!(theirs.contains(&name), own.contains(&name), "{name}");
        }
    }

    #[test]
    fn lines_come_in_the_hosts_order() {
        let (host, own) = (host(), print(&here(), &[CpuId(0), CpuId(1)]));
        let names = |text: &str| -> Vec<String> {
            text.lines()
                .take_while(|line| !line.is_empty())
                .map(|line| line.split(':').next().unwrap_or("").into())
                .collect()
        };
        let theirs = names(&host);
        let mut rest = theirs.iter();
        for name in names(&own) {
            assert!(rest.any(|other| *other == name), "{name:?} is not there, or not there in order");
        }
        assert_eq!(own.matches("processor\t: ").count(), 2);
    }
}
