// The only instructions of the kernel that touch user addresses. A page fault in one of them resumes
// at the place the table at the end says, so a wild pointer is a return value. The kernel isn't
// preempted and runs with interrupts off, so nothing else happens on this CPU in between. The macros are bytes.s's.

.text
.code64

// As in bytes.s.
.cfi_startproc

.macro user_access_begin
    cmp byte ptr [rip + SMAP_ON], 0
    je 900f
    stac
900:
.endm
.macro user_access_end
    cmp byte ptr [rip + SMAP_ON], 0
    je 901f
    clac
901:
.endm

.macro copy_8
    mov r8, [rsi]
    mov [rdi], r8
.endm

// user_copy(rdi = to, rsi = from, rdx = bytes) -> rax = bytes not copied
.global user_copy
user_copy:
    user_access_begin
copy_blocks:
    cmp rdx, 64
    jb copy_rest
copy_block_start:
    copy_64
copy_block_end:
    advance 64
    jmp copy_blocks
copy_rest:
    cmp rdx, 8
    jb copy_bytes
copy_word_start:
    copy_8
copy_word_end:
    advance 8
    jmp copy_rest
copy_bytes:                     // also where a faulting block or word goes on, to the very byte
    test rdx, rdx
    jz copy_done
copy_byte_start:
    mov al, [rsi]
    mov [rdi], al
copy_byte_end:
    advance 1
    jmp copy_bytes
copy_done:
    user_access_end
    mov rax, rdx
    ret

// user_zero(rdi = to, rsi = bytes) -> rax = bytes not zeroed
.global user_zero
user_zero:
    user_access_begin
    xor eax, eax
zero_words:
    cmp rsi, 8
    jb zero_bytes
zero_word_start:
    mov [rdi], rax
zero_word_end:
    add rdi, 8
    sub rsi, 8
    jmp zero_words
zero_bytes:
    test rsi, rsi
    jz zero_done
zero_byte_start:
    mov [rdi], al
zero_byte_end:
    inc rdi
    dec rsi
    jmp zero_bytes
zero_done:
    user_access_end
    mov rax, rsi
    ret

// user_find_zero(rdi = from, rsi = bytes) -> rax = bytes before the first NUL (or all of them),
// rdx = 1 if a fault ended it there
.global user_find_zero
user_find_zero:
    user_access_begin
    xor eax, eax
    xor edx, edx
find_next:
    cmp rax, rsi
    jae find_done
find_start:
    cmp byte ptr [rdi + rax], 0
find_end:
    je find_done
    inc rax
    jmp find_next
find_fault:
    mov edx, 1
find_done:
    user_access_end
    ret

// user_load_u32(rdi = from) -> rax = value, rdx = 1 on a fault
.global user_load_u32
user_load_u32:
    user_access_begin
    xor edx, edx
load_start:
    mov eax, [rdi]
load_end:
    user_access_end
    ret
word_fault:
    mov edx, 1
    user_access_end
    ret

// user_exchange_u32(rdi = at, esi = old, edx = new) -> rax = value found, rdx = 1 on a fault
.global user_exchange_u32
user_exchange_u32:
    user_access_begin
    mov ecx, edx
    mov eax, esi
    xor edx, edx
exchange_start:
    lock cmpxchg [rdi], ecx
exchange_end:
    user_access_end
    ret

// fpu_restore(rdi = area, esi = low, edx = high mask, ecx = 1: XRSTOR, 0: FXRSTOR) -> rax = 1 if the area
// is malformed: a program may write its own through a signal frame.
.global fpu_restore
fpu_restore:
    mov eax, esi
    test ecx, ecx
    jz fxrstor_start
xrstor_start:
    xrstor64 [rdi]
xrstor_end:
    xor eax, eax
    ret
fxrstor_start:
    fxrstor64 [rdi]
fxrstor_end:
    xor eax, eax
    ret
fpu_fault:
    mov eax, 1
    ret
.cfi_endproc

// iretq with a bad frame can't happen (cpu/user.rs checks), so it has no entry here.
.section .rodata
.balign 8
.global fixup_table
fixup_table:
    .quad copy_block_start, copy_block_end, copy_bytes
    .quad copy_word_start, copy_word_end, copy_bytes
    .quad copy_byte_start, copy_byte_end, copy_done
    .quad zero_word_start, zero_word_end, zero_bytes
    .quad zero_byte_start, zero_byte_end, zero_done
    .quad find_start, find_end, find_fault
    .quad load_start, load_end, word_fault
    .quad exchange_start, exchange_end, word_fault
    .quad xrstor_start, xrstor_end, fpu_fault
    .quad fxrstor_start, fxrstor_end, fpu_fault
.global fixup_table_end
fixup_table_end:
