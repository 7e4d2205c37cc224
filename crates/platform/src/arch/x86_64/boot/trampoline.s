// Real mode to long mode, copied to TRAMPOLINE_PHYS (0x8000) by whoever starts a CPU, who also fills
// the words at 0x8f00. Followed by its page table: the low 2 MiB at their own address, and the image of
// the CPU's kernel, so that the jump into it works whatever memory that kernel lies in.

.section .rodata
.balign 16
.global trampoline_start
trampoline_start:
.code16
    cli
    cld
    xor ax, ax
    mov ds, ax
    // Here; and may we go on? After that nobody resets us any more.
    mov word ptr [0x8f30], 1
1:  pause
    cmp word ptr [0x8f38], 0
    je 1b
    // lgdt [trampoline_gdt_pointer]: the assembler takes no difference of symbols as an address.
    .byte 0x0f, 0x01, 0x16
    .word 0x8000 + trampoline_gdt_pointer - trampoline_start
    mov eax, cr0
    or eax, 1
    mov cr0, eax
    .byte 0x66, 0xea
    .long 0x8000 + trampoline_protected - trampoline_start
    .word 0x08
.code32
trampoline_protected:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov eax, cr4
    or eax, 0x20                // PAE
    mov cr4, eax
    mov eax, 0x9000
    mov cr3, eax
    mov ecx, 0xc0000080         // EFER: LME, NXE
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, cr0
    and eax, 0x9fffffff         // caches on: CD and NW are set after INIT
    or eax, 0x80010000          // PG, WP
    mov cr0, eax
    .byte 0xea
    .long 0x8000 + trampoline_long - trampoline_start
    .word 0x18
.code64
trampoline_long:
    xor eax, eax
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov fs, ax
    mov gs, ax
    mov rax, [0x8f00]           // page table of the kernel
    mov rsp, [0x8f08]
    mov rsi, [0x8f10]           // function
    mov rdi, [0x8f18]           // its argument
    mov rdx, [0x8f20]           // cpu_entry
    jmp rdx
.balign 8
trampoline_gdt:
    .quad 0
    .quad 0x00cf9a000000ffff    // 0x08: 32-bit code
    .quad 0x00cf92000000ffff    // 0x10: data
    .quad 0x00af9a000000ffff    // 0x18: 64-bit code
trampoline_gdt_pointer:
    .word 31
    .long 0x8000 + trampoline_gdt - trampoline_start
.global trampoline_end
trampoline_end:
