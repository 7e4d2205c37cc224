// PVH entry (Xen "direct boot ABI"): 32-bit protected mode, paging off, ebx = start info.
// Builds the first page table (identity for 4 GiB, and the image at its virtual address), turns long
// mode on and calls primary_start on the boot stack.

.section .note.pvh, "a"
.balign 4
.long 4                         // name bytes
.long 4                         // descriptor bytes
.long 18                        // XEN_ELFNOTE_PHYS32_ENTRY
.asciz "Xen"
.long pvh_entry_phys

.section .text.boot, "ax"
.code32
.global pvh_entry
pvh_entry:
    cli
    cld
    // Before anything can write .data: keep it as it is, for the kernels we shall start.
    mov esi, offset data_phys
    mov edi, offset pristine_phys
    mov ecx, offset data_bytes
    rep movsb

    // boot_tables: PML4, PDPT low, PDPT high, PD image, PD 0..3 of the identity map.
    mov edi, offset boot_pml4_phys
    lea eax, [edi + 0x1003]
    mov [edi], eax
    lea eax, [edi + 0x2003]
    mov [edi + 511 * 8], eax
    lea eax, [edi + 0x3003]
    mov [edi + 0x2000 + 510 * 8], eax
    lea eax, [edi + 0x4003]
    mov ecx, 0
1:  mov [edi + 0x1000 + ecx * 8], eax
    add eax, 0x1000
    inc ecx
    cmp ecx, 4
    jne 1b
    mov eax, 0x83               // present, writable, 2 MiB
    mov ecx, 0
2:  mov [edi + 0x4000 + ecx * 8], eax
    add eax, 0x200000
    inc ecx
    cmp ecx, 2048
    jne 2b
    mov eax, 0x200083           // the image, from PRIMARY_PHYS on
    mov ecx, 0
3:  mov [edi + 0x3000 + ecx * 8], eax
    add eax, 0x200000
    inc ecx
    cmp ecx, 32
    jne 3b

    mov cr3, edi
    mov eax, cr4
    or eax, 0x20                // PAE
    mov cr4, eax
    mov ecx, 0xc0000080         // EFER: LME, NXE
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, cr0
    or eax, 0x80010000          // PG, WP
    mov cr0, eax
    mov eax, offset boot_gdt_phys
    lgdt [eax]
    mov eax, offset boot_long_phys
    // A far jump through registers: push selector and address on a borrowed stack.
    mov esp, offset boot_pml4_phys
    add esp, 0x3800             // unused middle of the image's page directory
    push 0x10
    push eax
    retf

.code64
.global boot_long_mode
boot_long_mode:
    mov ax, 0x18
    mov ds, ax
    mov es, ax
    mov ss, ax
    xor eax, eax
    mov fs, ax
    mov gs, ax
    movabs rsp, offset boot_stack_end
    xor ebp, ebp
    mov edi, ebx
    movabs rax, offset primary_start
    call rax
    ud2

// First instruction of a CPU in its own kernel's address space: rax = page table, rsp = stack (valid
// only under it), rsi = function, rdi = its argument.
.global cpu_entry
cpu_entry:
    mov cr3, rax
    xor ebp, ebp
    call rsi
    ud2

.section .rodata
.balign 8
.global boot_gdt
boot_gdt:
    .quad 0
    .quad 0
    .quad 0x00af9a000000ffff    // 0x10: 64-bit code
    .quad 0x00cf92000000ffff    // 0x18: data
.global boot_gdt_pointer
boot_gdt_pointer:
    .word 31
    .long boot_gdt_load         // set by the linker to the physical address
    .long 0

// The heap takes both when the kernel runs (heap.rs).
.section .bss
.balign 4096
.global boot_tables
boot_tables:
    .skip 8 * 4096
.global boot_stack_start
boot_stack_start:
    .skip 64 * 1024
.global boot_stack_end
boot_stack_end:
