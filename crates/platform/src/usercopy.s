// Touching user memory from the kernel, with recovery. Intel syntax, System V calling convention.
//
// Each function answers u64::MAX when it is done, else the user address that faulted. A page fault in
// the kernel at an instruction listed in usercopy_fixups (see usercopy.rs) is resumed at the label
// beside it with the fault address (CR2) in rax.
//
// Whole words are moved while there are enough. A fault among them is not reported: the byte loop
// takes over from there and meets the fault again at the exact byte, so what lies before the address
// in the answer has been done, also where a word straddles two pages. Not `rep movs`: emulators run
// it an element at a time, and kernels with SMAP pay for it as well.

.pushsection .rodata.usercopy_fixups, "a"
.balign 4
usercopy_fixups:
.popsection

.macro user_open
    cmp byte ptr [rip + usercopy_smap], 0
    je 99f
    stac
99:
.endm

.macro user_close
    cmp byte ptr [rip + usercopy_smap], 0
    je 99f
    clac
99:
.endm

.macro fixup from, to, target
    .pushsection .rodata.usercopy_fixups, "a"
    .long \from - ., \to - ., \target - .
    .popsection
.endm

.text

// user_copy(rdi = to, rsi = from, rdx = bytes)
.global user_copy
user_copy:
    user_open
    cmp rdx, 64
    jb 20f
15: mov rcx, [rsi]
    mov r8, [rsi + 8]
    mov r9, [rsi + 16]
    mov r10, [rsi + 24]
    mov [rdi], rcx
    mov [rdi + 8], r8
    mov [rdi + 16], r9
    mov [rdi + 24], r10
    mov rcx, [rsi + 32]
    mov r8, [rsi + 40]
    mov r9, [rsi + 48]
    mov r10, [rsi + 56]
    mov [rdi + 32], rcx
    mov [rdi + 40], r8
    mov [rdi + 48], r9
    mov [rdi + 56], r10
    add rsi, 64
    add rdi, 64
    sub rdx, 64
    cmp rdx, 64
    jae 15b
20: cmp rdx, 8
    jb 40f
30: mov rcx, [rsi]
    mov [rdi], rcx
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    cmp rdx, 8
    jae 30b
40: test rdx, rdx
    jz 60f
50: movzx ecx, byte ptr [rsi]
    mov [rdi], cl
    inc rsi
    inc rdi
    dec rdx
    jnz 50b
60: mov rax, -1
70: user_close
    ret
    fixup 15b, 40b, 40b
    fixup 50b, 60b, 70b

// user_zero(rdi = to, rsi = bytes)
.global user_zero
user_zero:
    user_open
    xor ecx, ecx
    cmp rsi, 64
    jb 20f
15: mov [rdi], rcx
    mov [rdi + 8], rcx
    mov [rdi + 16], rcx
    mov [rdi + 24], rcx
    mov [rdi + 32], rcx
    mov [rdi + 40], rcx
    mov [rdi + 48], rcx
    mov [rdi + 56], rcx
    add rdi, 64
    sub rsi, 64
    cmp rsi, 64
    jae 15b
20: test rsi, rsi
    jz 40f
30: mov [rdi], cl
    inc rdi
    dec rsi
    jnz 30b
40: mov rax, -1
50: user_close
    ret
    fixup 15b, 20b, 20b
    fixup 30b, 40b, 50b

// user_string_length(rdi = string, rsi = limit, rdx = out: bytes before the NUL, or limit)
.global user_string_length
user_string_length:
    user_open
    xor ecx, ecx
15: cmp rcx, rsi
    jae 30f
20: cmp byte ptr [rdi + rcx], 0
    je 30f
    inc rcx
    jmp 15b
30: mov [rdx], rcx
    mov rax, -1
40: user_close
    ret
    fixup 20b, 30b, 40b

// user_load_u32(rdi = at, rsi = out)
.global user_load_u32
user_load_u32:
    user_open
15: mov ecx, [rdi]
20: mov [rsi], ecx
    mov rax, -1
30: user_close
    ret
    fixup 15b, 20b, 30b

// user_compare_exchange_u32(rdi = at, esi = old, edx = new, rcx = out: the value found)
.global user_compare_exchange_u32
user_compare_exchange_u32:
    user_open
    mov eax, esi
15: lock cmpxchg [rdi], edx
20: mov [rcx], eax
    mov rax, -1
30: user_close
    ret
    fixup 15b, 20b, 30b

.pushsection .rodata.usercopy_fixups, "a"
usercopy_fixups_end:
.popsection
