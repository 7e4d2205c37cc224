//! What a program finds on its stack: arguments, environment and the auxiliary vector (System V ABI, 3.4.1; man 3 getauxval).

use crate::arch::PLATFORM;
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Access, UserAddr, PAGE_SIZE};
use vm::{MapAddress, MapRequest, Space};

/// What the caller of execve gave.
pub(super) struct Strings<'a> {
    /// The path as given.
    pub path: &'a [u8],
    pub arguments: &'a [Vec<u8>],
    pub environment: &'a [Vec<u8>],
}

/// Where it is now.
pub(super) struct Stack {
    /// The stack pointer of the first instruction.
    pub bottom: u64,
    pub arguments: (u64, u64),
    pub environment: (u64, u64),
    pub auxv: (u64, u64),
}

/// Maps the stack below `top`, as much as the start needs (it grows down to RLIMIT_STACK), and fills it in. `auxiliary` lacks
/// what the stack itself holds.
pub(super) async fn write(
    space: &Arc<Space>,
    top: u64,
    strings: &Strings<'_>,
    random: &[u8],
    mut auxiliary: Vec<(u64, u64)>,
) -> Result<Stack> {
    let Strings { path, arguments, environment } = strings;
    let bytes: usize = arguments.iter().chain(*environment).map(|string| string.len() + 9).sum();
    let size = (bytes + path.len() + 0x20000).next_multiple_of(PAGE_SIZE) as u64;
    let stack =
        MapRequest { grows_down: true, stack: true, ..MapRequest::anonymous(size, Access::READ | Access::WRITE) };
    space.map(stack.at(MapAddress::Fixed(UserAddr(top - size)))).await?;

    let mut writer = StackWriter { space, at: top - 8 };
    let name_at = writer.string(path).await?;
    let environment_at = writer.strings(environment).await?;
    let environment_end = name_at;
    let arguments_at = writer.strings(arguments).await?;
    let environment_start = environment_at.first().copied().unwrap_or(environment_end);
    let arguments_start = arguments_at.first().copied().unwrap_or(environment_start);
    let platform = writer.string(PLATFORM).await?;
    writer.at = (writer.at - 16) & !15;
    let random_at = writer.at;
    space.write(UserAddr(random_at), random).await?;
    auxiliary.extend([
        (25, random_at), // AT_RANDOM
        (31, name_at),   // AT_EXECFN
        (15, platform),  // AT_PLATFORM
        (0, 0),          // AT_NULL
    ]);

    let words = 1 + arguments_at.len() + 1 + environment_at.len() + 1 + auxiliary.len() * 2;
    let bottom = (writer.at - words as u64 * 8) & !15;
    let mut block: Vec<u64> = Vec::with_capacity(words);
    block.push(arguments_at.len() as u64);
    block.extend(&arguments_at);
    block.push(0);
    block.extend(&environment_at);
    block.push(0);
    let auxiliary_at = bottom + block.len() as u64 * 8;
    block.extend(auxiliary.iter().flat_map(|&(kind, value)| [kind, value]));
    let bytes: Vec<u8> = block.iter().flat_map(|word| word.to_le_bytes()).collect();
    space.write(UserAddr(bottom), &bytes).await?;
    Ok(Stack {
        bottom,
        arguments: (arguments_start, environment_start),
        environment: (environment_start, environment_end),
        auxv: (auxiliary_at, auxiliary_at + auxiliary.len() as u64 * 16),
    })
}

/// Writes strings from the top of the stack down.
struct StackWriter<'a> {
    space: &'a Arc<Space>,
    at: u64,
}

impl StackWriter<'_> {
    async fn string(&mut self, string: &[u8]) -> Result<u64> {
        let mut bytes = string.to_vec();
        bytes.push(0);
        self.at -= bytes.len() as u64;
        self.space.write(UserAddr(self.at), &bytes).await?;
        Ok(self.at)
    }

    /// Strings in order at ascending addresses, without gaps (as /proc/PID/cmdline wants them).
    async fn strings(&mut self, strings: &[Vec<u8>]) -> Result<Vec<u64>> {
        let mut joined = Vec::with_capacity(strings.iter().map(|string| string.len() + 1).sum());
        let mut offsets = Vec::with_capacity(strings.len());
        for string in strings {
            offsets.push(joined.len() as u64);
            joined.extend_from_slice(string);
            joined.push(0);
        }
        self.at -= joined.len() as u64;
        self.space.write(UserAddr(self.at), &joined).await?;
        Ok(offsets.into_iter().map(|offset| self.at + offset).collect())
    }
}
