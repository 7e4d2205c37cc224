// Between user mode and the kernel. User mode is a call: enter_user pushes what the compiler wants
// preserved, loads the user's registers and goes; whatever comes back (system call, exception,
// interrupt) stores the registers again, drops to the stack pointer that enter_user left in the
// per-CPU area, and returns from enter_user. So a CPU needs one kernel stack, and nothing about user
// mode lives on it.
//
// Per-CPU area (area.rs): gs:[8] kernel stack pointer, gs:[16] registers, gs:[24] scratch,
// gs:[68] rsp0 of the task state segment.

.text
.code64

.macro load_registers base
    mov rbx, [\base + 8]
    mov rdx, [\base + 24]
    mov rsi, [\base + 32]
    mov rbp, [\base + 48]
    mov r8, [\base + 64]
    mov r9, [\base + 72]
    mov r10, [\base + 80]
    mov r12, [\base + 96]
    mov r13, [\base + 104]
    mov r14, [\base + 112]
    mov r15, [\base + 120]
    mov rax, [\base]
.endm

.macro store_registers base
    mov [\base + 16], rcx
    mov [\base + 24], rdx
    mov [\base + 32], rsi
    mov [\base + 40], rdi
    mov [\base + 48], rbp
    mov [\base + 64], r8
    mov [\base + 72], r9
    mov [\base + 80], r10
    mov [\base + 88], r11
    mov [\base + 96], r12
    mov [\base + 104], r13
    mov [\base + 112], r14
    mov [\base + 120], r15
.endm

.macro return_from_enter_user
    mov rsp, gs:[8]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
.endm

// enter_user(rdi = registers, esi = may use sysret) -> rax = vector (256: system call), rdx = error code
.global enter_user
enter_user:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov gs:[8], rsp
    mov gs:[16], rdi
    mov gs:[68], rsp
    test esi, esi
    jnz 1f
    push 0x2b
    push qword ptr [rdi + 56]
    push qword ptr [rdi + 136]
    push 0x33
    push qword ptr [rdi + 128]
    mov rcx, [rdi + 16]
    mov r11, [rdi + 88]
    load_registers rdi
    mov rdi, [rdi + 40]
    swapgs
    iretq
1:  mov rcx, [rdi + 128]
    mov r11, [rdi + 136]
    load_registers rdi
    mov rsp, [rdi + 56]
    mov rdi, [rdi + 40]
    swapgs
    sysretq

.global syscall_entry
syscall_entry:
    swapgs
    mov gs:[24], rsp
    mov rsp, gs:[16]
    mov [rsp], rax
    mov [rsp + 8], rbx
    store_registers rsp
    mov [rsp + 128], rcx
    mov [rsp + 136], r11
    mov rax, gs:[24]
    mov [rsp + 56], rax
    mov eax, 256
    xor edx, edx
    return_from_enter_user

// Interrupts are off again when it returns.
.global halt_with_interrupts
halt_with_interrupts:
    sti
.global about_to_halt
about_to_halt:
    hlt
.global halted
halted:
    cli
    ret

// After a non-maskable interrupt in user mode, which did not return by iretq: until one is executed, the CPU takes no other.
.global take_nmis_again
take_nmis_again:
    pop rcx
    mov rax, rsp
    push 0x18
    push rax
    pushfq
    push 0x10
    push rcx
    iretq

// Stack: vector, error code, rip, cs, rflags, rsp, ss.
trap_common:
    cld
    test byte ptr [rsp + 24], 3
    jz trap_in_kernel
    swapgs
    push rax
    mov rax, gs:[16]
    mov [rax + 8], rbx
    store_registers rax
    pop rbx
    mov [rax], rbx
    mov rbx, [rsp + 16]
    mov [rax + 128], rbx
    mov rbx, [rsp + 32]
    mov [rax + 136], rbx
    mov rbx, [rsp + 40]
    mov [rax + 56], rbx
    pop rax
    pop rdx
    return_from_enter_user

trap_in_kernel:
    push rax
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    // The vectors with a stack of their own (1, 2, 8, 18) may come between swapgs and iretq, where gs is still or
    // already the user's, and a program can make that look like the kernel's (wrgsbase). So gs says nothing here: it is
    // taken from above the CPU's frame on that stack (area.rs), whatever it was. Of those vectors 2 (the probe of heartbeat.rs)
    // returns: rbx and r12, which calls preserve, say that gs must go back, and to what.
    xor ebx, ebx
    mov eax, [rsp + 15 * 8]
    cmp eax, 31
    ja 2f
    mov ecx, 0x40106
    bt ecx, eax
    jnc 2f
    mov ecx, 0xc0000101
    rdmsr
    shl rdx, 32
    lea r12, [rax + rdx]
    mov eax, [rsp + 22 * 8]
    mov edx, [rsp + 22 * 8 + 4]
    wrmsr
    mov ebx, 1
2:  mov rdi, rsp
    call kernel_trap
    test ebx, ebx
    jz 3f
    mov ecx, 0xc0000101
    mov eax, r12d
    mov rdx, r12
    shr rdx, 32
    wrmsr
3:
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    pop rax
    add rsp, 16
    iretq

// 256 stubs of 16 bytes: the exceptions that push an error code are 8, 10-14, 17, 21, 29, 30.
.balign 16
.global trap_vectors
trap_vectors:
.set vector, 0
.rept 256
    .balign 16
    .if (vector == 8) | ((vector >= 10) & (vector <= 14)) | (vector == 17) | (vector == 21) | (vector == 29) | (vector == 30)
    .else
    push 0
    .endif
    push vector
    jmp trap_common
    .set vector, vector + 1
.endr
