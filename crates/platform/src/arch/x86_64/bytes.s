// memcpy, memmove and memset for the compiler, instead of the weak ones of compiler_builtins, which use `rep movsq` and
// `rep stosq`: an emulator runs those an element at a time, and the state of futures is copied all day. Unrolled
// words, as in usercopy.s. The kernel has no vector registers.

.text
.code64

// None of this touches the stack: whoever looks for the caller, in a panic or for a profile, finds it on top.
.cfi_sections .debug_frame
.cfi_startproc

.macro copy_32 at
    mov r8, [rsi + \at]
    mov r9, [rsi + \at + 8]
    mov r10, [rsi + \at + 16]
    mov r11, [rsi + \at + 24]
    mov [rdi + \at], r8
    mov [rdi + \at + 8], r9
    mov [rdi + \at + 16], r10
    mov [rdi + \at + 24], r11
.endm
.macro copy_64
    copy_32 0
    copy_32 32
.endm
.macro advance bytes
    add rsi, \bytes
    add rdi, \bytes
    sub rdx, \bytes
.endm

// memcpy(rdi = to, rsi = from, rdx = bytes) -> rax = to
.global memcpy
.type memcpy, @function
memcpy:
    mov rax, rdi
1:  cmp rdx, 64
    jb 2f
    copy_64
    advance 64
    jmp 1b
2:  cmp rdx, 32
    jb copy_ends
    copy_32 0
    advance 32
// Below 32 bytes: both ends, which may overlap, all read before any is written.
copy_ends:
    cmp rdx, 16
    jb 1f
    mov r8, [rsi]
    mov r9, [rsi + 8]
    mov r10, [rsi + rdx - 16]
    mov r11, [rsi + rdx - 8]
    mov [rdi], r8
    mov [rdi + 8], r9
    mov [rdi + rdx - 16], r10
    mov [rdi + rdx - 8], r11
    ret
1:  cmp rdx, 8
    jb 2f
    mov r8, [rsi]
    mov r9, [rsi + rdx - 8]
    mov [rdi], r8
    mov [rdi + rdx - 8], r9
    ret
2:  cmp rdx, 4
    jb 3f
    mov r8d, [rsi]
    mov r9d, [rsi + rdx - 4]
    mov [rdi], r8d
    mov [rdi + rdx - 4], r9d
    ret
3:  test rdx, rdx
    jz 4f
    mov rcx, rdx
    shr rcx, 1
    mov r8b, [rsi]
    mov r9b, [rsi + rcx]
    mov r10b, [rsi + rdx - 1]
    mov [rdi], r8b
    mov [rdi + rcx], r9b
    mov [rdi + rdx - 1], r10b
4:  ret

// memmove(rdi = to, rsi = from, rdx = bytes) -> rax = to. Upwards unless `to` lies inside of what is read: then memcpy does
// it, for it has read all that it overwrites. Downwards each word is read before any of its bytes is overwritten.
.global memmove
.type memmove, @function
memmove:
    mov rax, rdi
    mov rcx, rdi
    sub rcx, rsi
    cmp rcx, rdx
    jae memcpy
1:  cmp rdx, 32
    jb copy_ends
    mov r8, [rsi + rdx - 8]
    mov r9, [rsi + rdx - 16]
    mov r10, [rsi + rdx - 24]
    mov r11, [rsi + rdx - 32]
    mov [rdi + rdx - 8], r8
    mov [rdi + rdx - 16], r9
    mov [rdi + rdx - 24], r10
    mov [rdi + rdx - 32], r11
    sub rdx, 32
    jmp 1b

// memset(rdi = to, esi = value, rdx = bytes) -> rax = to
.global memset
.type memset, @function
memset:
    mov rax, rdi
    movzx ecx, sil
    mov r8, 0x0101010101010101
    imul r8, rcx
1:  cmp rdx, 64
    jb 2f
    mov [rdi], r8
    mov [rdi + 8], r8
    mov [rdi + 16], r8
    mov [rdi + 24], r8
    mov [rdi + 32], r8
    mov [rdi + 40], r8
    mov [rdi + 48], r8
    mov [rdi + 56], r8
    add rdi, 64
    sub rdx, 64
    jmp 1b
2:  cmp rdx, 32
    jb 3f
    mov [rdi], r8
    mov [rdi + 8], r8
    mov [rdi + 16], r8
    mov [rdi + 24], r8
    add rdi, 32
    sub rdx, 32
// Both ends, which may overlap.
3:  cmp rdx, 16
    jb 4f
    mov [rdi], r8
    mov [rdi + 8], r8
    mov [rdi + rdx - 16], r8
    mov [rdi + rdx - 8], r8
    ret
4:  cmp rdx, 8
    jb 5f
    mov [rdi], r8
    mov [rdi + rdx - 8], r8
    ret
5:  cmp rdx, 4
    jb 6f
    mov [rdi], r8d
    mov [rdi + rdx - 4], r8d
    ret
6:  test rdx, rdx
    jz 7f
    mov [rdi], r8b
    mov [rdi + rdx - 1], r8b
    shr rdx, 1
    mov [rdi + rdx], r8b
7:  ret
.cfi_endproc
