// SPDX-License-Identifier: MIT OR Apache-2.0
// Machine code that a test program generates and runs, with given registers before and recorded registers after.
#ifndef CODE_H
#define CODE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096L
// The address of generated code: the same natively and in a cell. Writable data follows it.
uint8_t *code_base = (uint8_t *)0x20000000;
#define CODE code_base
#define DATA (CODE + 4 * PAGE)

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, RSP, FLAGS, REGISTERS };
enum { RED_ZONE = 128 };

static const char *const register_names[REGISTERS] = {
	"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rsp", "flags",
};

// The state before and after code: registers, the flags, some vector registers, the red zone below its stack pointer.
struct state {
	uint64_t registers[REGISTERS];
	uint8_t vectors[3][16];
	uint8_t red_zone[RED_ZONE];
};

// The assembly below uses these names.
struct state code_before, code_after;
uint64_t code_stack, code_target;

// Runs the code at `code_target` from `code_before`. The code returns by a jump to `code_end`, which fills `code_after`.
void code_run(void);
void code_end(void);

asm(".pushsection .text\n"
    ".globl code_run\n"
    "code_run:\n"
    "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "mov %rsp, code_stack(%rip)\n"
    // The red zone, upwards.
    "lea code_before+184(%rip), %rsi\n"
    "lea -128(%rsp), %rdi\n"
    "mov $128, %ecx\n"
    "cld\n"
    "rep movsb\n"
    "movdqu code_before+136(%rip), %xmm0\n"
    "movdqu code_before+152(%rip), %xmm7\n"
    "movdqu code_before+168(%rip), %xmm15\n"
    "lea -256(%rsp), %rsp\n"
    "push code_before+128(%rip)\n"
    "popfq\n"
    "mov code_stack(%rip), %rsp\n"
    "mov code_before+0(%rip), %rax; mov code_before+8(%rip), %rbx; mov code_before+16(%rip), %rcx\n"
    "mov code_before+24(%rip), %rdx; mov code_before+32(%rip), %rsi; mov code_before+40(%rip), %rdi\n"
    "mov code_before+48(%rip), %rbp; mov code_before+56(%rip), %r8; mov code_before+64(%rip), %r9\n"
    "mov code_before+72(%rip), %r10; mov code_before+80(%rip), %r11; mov code_before+88(%rip), %r12\n"
    "mov code_before+96(%rip), %r13; mov code_before+104(%rip), %r14; mov code_before+112(%rip), %r15\n"
    "jmp *code_target(%rip)\n"
    ".globl code_end\n"
    "code_end:\n"
    "mov %rax, code_after+0(%rip); mov %rbx, code_after+8(%rip); mov %rcx, code_after+16(%rip)\n"
    "mov %rdx, code_after+24(%rip); mov %rsi, code_after+32(%rip); mov %rdi, code_after+40(%rip)\n"
    "mov %rbp, code_after+48(%rip); mov %r8, code_after+56(%rip); mov %r9, code_after+64(%rip)\n"
    "mov %r10, code_after+72(%rip); mov %r11, code_after+80(%rip); mov %r12, code_after+88(%rip)\n"
    "mov %r13, code_after+96(%rip); mov %r14, code_after+104(%rip); mov %r15, code_after+112(%rip)\n"
    "mov %rsp, code_after+120(%rip)\n"
    "mov code_stack(%rip), %rsp\n"
    "lea -256(%rsp), %rsp\n"
    "pushfq\n"
    "pop code_after+128(%rip)\n"
    "push $2\n"
    "popfq\n"
    "movdqu %xmm0, code_after+136(%rip)\n"
    "movdqu %xmm7, code_after+152(%rip)\n"
    "movdqu %xmm15, code_after+168(%rip)\n"
    "lea 128(%rsp), %rsi\n"
    "lea code_after+184(%rip), %rdi\n"
    "mov $128, %ecx\n"
    "rep movsb\n"
    "lea 256(%rsp), %rsp\n"
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
    "ret\n"
    ".popsection\n");

// The end of the code generated so far.
static uint8_t *code_place;

static inline void put(const void *bytes, size_t count)
{
	memcpy(code_place, bytes, count);
	code_place += count;
}

#define PUT(...) put((const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }))

static inline void put32(int64_t value)
{
	put(&(int32_t){ (int32_t)value }, 4);
}

// Appends bytes that end with the distance to `to`, relative to the position `after` bytes behind them.
static inline void put_relative(const void *bytes, size_t count, const void *to, int after)
{
	put(bytes, count);
	put32((const uint8_t *)to - (code_place + 4 + after));
}

// Appends the jump that ends the code.
static inline void put_end(void)
{
	uint64_t end = (uint64_t)(uintptr_t)code_end;
	PUT(0xff, 0x25, 0, 0, 0, 0);
	put(&end, 8);
}

// Maps memory for code at its fixed address, and data behind it.
static inline void code_open(void)
{
	if (mmap(CODE, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != CODE)
		abort();
	code_place = CODE;
}

static inline void code_protect(int protection)
{
	if (mprotect(CODE, 4 * PAGE, protection))
		abort();
}

static uint64_t code_seed;

static inline uint64_t code_random(void)
{
	code_seed = code_seed * 6364136223846793005u + 1442695040888963407u;
	return code_seed >> 16 ^ code_seed << 32;
}

// Fills the registers with distinct numbers; the call is `close(-1)`, which fails without any effect.
static inline void code_fill(uint64_t flags)
{
	for (int index = 0; index < REGISTERS; index++)
		code_before.registers[index] = code_random();
	code_before.registers[RAX] = 3;
	code_before.registers[RDI] = (uint64_t)-1;
	code_before.registers[FLAGS] = flags;
	for (int index = 0; index < RED_ZONE; index++)
		code_before.red_zone[index] = (uint8_t)code_random();
	for (int vector = 0; vector < 3; vector++)
		for (int index = 0; index < 16; index++)
			code_before.vectors[vector][index] = (uint8_t)code_random();
}

// A hash of the state after the code.
static inline uint64_t code_sum(void)
{
	uint64_t sum = 14695981039346656037u;
	struct state state = code_after;
	state.registers[RSP] -= code_stack;
	for (size_t at = 0; at < sizeof state; at++)
		sum = (sum ^ ((const uint8_t *)&state)[at]) * 1099511628211u;
	return sum;
}

// Prints the registers that the code changed.
static inline void code_show(void)
{
	for (int index = 0; index < REGISTERS; index++) {
		uint64_t before = index == RSP ? code_stack : code_before.registers[index];
		uint64_t after = code_after.registers[index];
		if (index == FLAGS)
			before |= 0x202;
		if (after != before)
			printf(" %s=%lx", register_names[index], (unsigned long)(index == RSP ? after - code_stack : after));
	}
	if (memcmp(code_before.red_zone, code_after.red_zone, RED_ZONE))
		printf(" red zone");
	if (memcmp(code_before.vectors, code_after.vectors, sizeof code_before.vectors))
		printf(" vectors");
	putchar('\n');
}

#endif
