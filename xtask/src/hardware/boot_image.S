# SPDX-License-Identifier: MIT OR Apache-2.0
# Starts a kernel that is not compressed, in place of the program in Linux's boot images that decompresses it.
#
# The image's real-mode code jumps here in 32-bit protected mode without paging, with the address of the boot parameters in ESI
# (Documentation/arch/x86/boot.rst, "32-bit Boot Protocol"). The kernel expects 64-bit mode, identity-mapped memory, selector 0x10 for its
# code and 0x18 for its data, and the boot parameters in RSI.
#
# Given by the caller: LOAD and ENTRY, the physical addresses of the kernel and of its first instruction; SIZE, its bytes, which follow
# `kernel`; ZERO, the zero bytes after them. SIZE and ZERO are multiples of four.

.set CODE, 0x10
.set DATA, 0x18
.set EFER, 0xc0000080
.set EFER_LME, 1 << 8
.set CR4_PAE, 1 << 5
.set CR0_PG, 1 << 31
.set TABLE_ENTRY, 0x3       # present, writable
.set LARGE_PAGE_ENTRY, 0x83 # present, writable, 2 MiB
.set LARGE_PAGE, 2 << 20
.set PAGE, 4096

    .code32
    .globl _start
_start:
    cli
    movl %esi, %ebp
    # Move the kernel to its address, which is higher: from the last word to the first, since the ranges overlap.
    std
    movl $(kernel + SIZE - 4), %esi
    movl $(LOAD + SIZE - 4), %edi
    movl $(SIZE / 4), %ecx
    rep movsl
    cld
    movl $(LOAD + SIZE), %edi
    movl $(ZERO / 4), %ecx
    xorl %eax, %eax
    rep stosl
    # Map the first 4 GiB with pages of 2 MiB, and leave all other entries zero.
    movl $level_4, %edi
    movl $((kernel - level_4) / 4), %ecx
    rep stosl
    movl $(level_3 + TABLE_ENTRY), level_4
    movl $(level_2 + TABLE_ENTRY), level_3
    movl $(level_2 + PAGE + TABLE_ENTRY), level_3 + 8
    movl $(level_2 + 2 * PAGE + TABLE_ENTRY), level_3 + 16
    movl $(level_2 + 3 * PAGE + TABLE_ENTRY), level_3 + 24
    movl $LARGE_PAGE_ENTRY, %eax
    movl $level_2, %edi
1:  movl %eax, (%edi)
    addl $8, %edi
    addl $LARGE_PAGE, %eax
    jnc 1b
    # Enter 64-bit mode.
    lgdt descriptors
    movl %cr4, %eax
    orl $CR4_PAE, %eax
    movl %eax, %cr4
    movl $level_4, %eax
    movl %eax, %cr3
    movl $EFER, %ecx
    rdmsr
    orl $EFER_LME, %eax
    wrmsr
    movl %cr0, %eax
    orl $CR0_PG, %eax
    movl %eax, %cr0
    ljmp $CODE, $in_64_bit_mode

    .code64
in_64_bit_mode:
    movl $DATA, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %ebp, %esi
    movl $ENTRY, %eax
    jmp *%rax

    .balign 8
table:
    .quad 0, 0
    .quad 0x00af9a000000ffff # CODE: 64-bit code
    .quad 0x00cf92000000ffff # DATA: flat data
descriptors:
    .word descriptors - table - 1
    .long table

    .balign PAGE
level_4:
    .skip PAGE
level_3:
    .skip PAGE
level_2:
    .skip 4 * PAGE
kernel:
