// memcpy, memmove and memset for the compiler, instead of the weak ones of compiler_builtins, which use `rep movsq` and
// `rep stosq`: an emulator runs those an element at a time, and the state of futures is copied all day. Unrolled
// words, as in usercopy.s. The kernel has no vector registers.

.text
.code64

.macro copy_8
    mov r8, [rsi]
    mov [rdi], r8
.endm
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
2:  cmp rdx, 8
    jb 3f
    copy_8
    advance 8
    jmp 2b
3:  test rdx, rdx
    jz 4f
    mov cl, [rsi]
    mov [rdi], cl
    advance 1
    jmp 3b
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
1:  cmp rdx, 8
    jb 2f
    mov r8, [rsi + rdx - 8]
    mov [rdi + rdx - 8], r8
    sub rdx, 8
    jmp 1b
2:  test rdx, rdx
    jz 3f
    mov cl, [rsi + rdx - 1]
    mov [rdi + rdx - 1], cl
    dec rdx
    jmp 2b
3:  ret

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
2:  cmp rdx, 8
    jb 3f
    mov [rdi], r8
    add rdi, 8
    sub rdx, 8
    jmp 2b
3:  test rdx, rdx
    jz 4f
    mov [rdi], r8b
    inc rdi
    dec rdx
    jmp 3b
4:  ret
