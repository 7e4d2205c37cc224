// memcpy, memmove and memset for the compiler, instead of the weak ones of compiler_builtins, which use `rep movsq` and
// `rep stosq`: an emulator runs those an element at a time, and the state of futures is copied all day. Unrolled
// words, as in usercopy.s. The kernel has no vector registers.

.text
.code64

// memcpy(rdi = to, rsi = from, rdx = bytes) -> rax = to
.global memcpy
.type memcpy, @function
memcpy:
    mov rax, rdi
1:  cmp rdx, 64
    jb 2f
    mov r8, [rsi]
    mov r9, [rsi + 8]
    mov r10, [rsi + 16]
    mov r11, [rsi + 24]
    mov [rdi], r8
    mov [rdi + 8], r9
    mov [rdi + 16], r10
    mov [rdi + 24], r11
    mov r8, [rsi + 32]
    mov r9, [rsi + 40]
    mov r10, [rsi + 48]
    mov r11, [rsi + 56]
    mov [rdi + 32], r8
    mov [rdi + 40], r9
    mov [rdi + 48], r10
    mov [rdi + 56], r11
    add rsi, 64
    add rdi, 64
    sub rdx, 64
    jmp 1b
2:  cmp rdx, 8
    jb 3f
    mov r8, [rsi]
    mov [rdi], r8
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    jmp 2b
3:  test rdx, rdx
    jz 4f
    mov cl, [rsi]
    mov [rdi], cl
    inc rsi
    inc rdi
    dec rdx
    jmp 3b
4:  ret

// memmove(rdi = to, rsi = from, rdx = bytes) -> rax = to. Downwards only when `to` lies inside of what is read; each word
// is read before any of its bytes can be overwritten, so overlapping by less than a word is safe too.
.global memmove
.type memmove, @function
memmove:
    mov rax, rdi
    mov rcx, rdi
    sub rcx, rsi
    cmp rcx, rdx
    jb 3f
1:  cmp rdx, 8
    jb 2f
    mov r8, [rsi]
    mov [rdi], r8
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    jmp 1b
2:  test rdx, rdx
    jz 6f
    mov cl, [rsi]
    mov [rdi], cl
    inc rsi
    inc rdi
    dec rdx
    jmp 2b
3:  cmp rdx, 8
    jb 5f
    mov r8, [rsi + rdx - 8]
    mov [rdi + rdx - 8], r8
    sub rdx, 8
    jmp 3b
5:  test rdx, rdx
    jz 6f
    mov cl, [rsi + rdx - 1]
    mov [rdi + rdx - 1], cl
    dec rdx
    jmp 5b
6:  ret

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
