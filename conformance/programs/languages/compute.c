// SPDX-License-Identifier: MIT OR Apache-2.0
// Computation and printing: formats, floating point, vector registers, jumps, the C library's own fast paths.
#define _GNU_SOURCE
#include "holds.h"

#include <fenv.h>
#include <float.h>
#include <immintrin.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

static volatile double zero = 0, one = 1, three = 3;

static void formats(int count, char **arguments)
{
	(void)count, (void)arguments;
	printf("%d %5d|%-5d|%05d %+d %u %x %#X %o %ld %" PRId64 " %zu %hhd\n", -7, 42, 42, 42, 42, 4000000000u, 255, 255, 8, LONG_MIN, INT64_MAX, (size_t)1, (signed char)300);
	printf("%f %.0f %e %g %G %a %10.3f|%-10.2e|\n", 3.14159, 2.5, 12345.678, 0.0001, 1e-10, 0.1, -2.71828, 6.02e23);
	printf("%f %f %f %g %.17g %.30f\n", INFINITY, -INFINITY, fabs(NAN), DBL_MIN / 4, 0.1, 0.1);
	printf("%Lg %.20Lg\n", 1.0L / 3, LDBL_MAX);
	printf("%s|%10s|%-10s|%.2s|%c|%%|\n", "text", "right", "left", "cut", 'c');
	printf("%2$s %1$s\n", "second", "first");
	char text[64];
	volatile size_t room = 5;
	HOLDS(snprintf(text, room, "%s", "longer than that") == 16 && !strcmp(text, "long"));
	int number;
	double real;
	char word[20];
	HOLDS(sscanf("  12 3.5e2 word rest", "%d %lf %19s", &number, &real, word) == 3 && number == 12 && real == 350 && !strcmp(word, "word"));
	HOLDS(strtol("-0x1fz", NULL, 16) == -31 && strtod("0x1.8p1", NULL) == 3 && strtoul("99999999999999999999", NULL, 10) == ULONG_MAX && errno == ERANGE);
	errno = ENOENT;
	fflush(stdout);
	perror("perror");
	fprintf(stderr, "to standard error, %s\n", "unbuffered");
	for (int line = 0; line < 3000; line++)
		printf("line %d fills the buffer more than once\n", line);
	printf("an end without a newline");
}

static void floats(int count, char **arguments)
{
	(void)count, (void)arguments;
	double sum = 0;
	for (int at = 1; at < 2000000; at++)
		sum += one / at * (at % 2 ? 1 : -1);
	printf("%.17g\n", sum);
	printf("%.17g %.17g %.17g %.17g %.17g\n", sin(three), exp(three), log(three), pow(three, 0.3), cbrt(three));
	printf("%.17g %.17g %.17g %.9g\n", sqrt(three), tan(1e10 * three), atan2(three, -one), (double)sqrtf((float)three));
	printf("%.20Lg %.20Lg\n", sqrtl(three), expl(three));
	HOLDS(one / zero == INFINITY && isnan(zero / zero));
	HOLDS(feclearexcept(FE_ALL_EXCEPT) == 0 && one / zero > 1 && fetestexcept(FE_DIVBYZERO) == FE_DIVBYZERO);
	static const int ROUNDINGS[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
	for (int at = 0; at < 4; at++) {
		fesetround(ROUNDINGS[at]);
		getpid();
		printf("%.17g %.17g %.20Lg %ld\n", one / three, -one / three, (long double)one / three, lrint(three / 2));
	}
	fesetround(FE_TONEAREST);
	_mm_setcsr(_mm_getcsr() | 0x8040);
	HOLDS(DBL_MIN * one / 4 == 0);
	_mm_setcsr(_mm_getcsr() & ~0x8040u);
	HOLDS(DBL_MIN * one / 4 > 0);
}

// Keeps values in all vector registers during system calls and while other processes run.
__attribute__((target("avx2"), noinline)) static bool keep_avx(void)
{
	uint8_t in[16][32], out[16][32];
	for (int at = 0; at < 16 * 32; at++)
		in[at / 32][at % 32] = (uint8_t)(at * 7 + 1);
	for (int round = 0; round < 200; round++) {
		long spin = round % 20 == 0 ? 20000000 : 100;
		__asm__ volatile(
			"vmovdqu 0(%[in]), %%ymm0\n vmovdqu 32(%[in]), %%ymm1\n vmovdqu 64(%[in]), %%ymm2\n vmovdqu 96(%[in]), %%ymm3\n"
			"vmovdqu 128(%[in]), %%ymm4\n vmovdqu 160(%[in]), %%ymm5\n vmovdqu 192(%[in]), %%ymm6\n vmovdqu 224(%[in]), %%ymm7\n"
			"vmovdqu 256(%[in]), %%ymm8\n vmovdqu 288(%[in]), %%ymm9\n vmovdqu 320(%[in]), %%ymm10\n vmovdqu 352(%[in]), %%ymm11\n"
			"vmovdqu 384(%[in]), %%ymm12\n vmovdqu 416(%[in]), %%ymm13\n vmovdqu 448(%[in]), %%ymm14\n vmovdqu 480(%[in]), %%ymm15\n"
			"mov %[call], %%eax\n syscall\n"
			"1: dec %[spin]\n jnz 1b\n"
			"vmovdqu %%ymm0, 0(%[out])\n vmovdqu %%ymm1, 32(%[out])\n vmovdqu %%ymm2, 64(%[out])\n vmovdqu %%ymm3, 96(%[out])\n"
			"vmovdqu %%ymm4, 128(%[out])\n vmovdqu %%ymm5, 160(%[out])\n vmovdqu %%ymm6, 192(%[out])\n vmovdqu %%ymm7, 224(%[out])\n"
			"vmovdqu %%ymm8, 256(%[out])\n vmovdqu %%ymm9, 288(%[out])\n vmovdqu %%ymm10, 320(%[out])\n vmovdqu %%ymm11, 352(%[out])\n"
			"vmovdqu %%ymm12, 384(%[out])\n vmovdqu %%ymm13, 416(%[out])\n vmovdqu %%ymm14, 448(%[out])\n vmovdqu %%ymm15, 480(%[out])\n"
			: [spin] "+r"(spin)
			: [in] "r"(in), [out] "r"(out), [call] "i"(SYS_getpid)
			: "rax", "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
			  "xmm13", "xmm14", "xmm15");
		if (memcmp(in, out, sizeof in))
			return false;
	}
	return true;
}

__attribute__((target("avx2,fma"))) static void wide_sum(void)
{
	static float values[8000];
	for (int at = 0; at < 8000; at++)
		values[at] = (float)at / 7;
	__m256 sum = _mm256_setzero_ps();
	for (int at = 0; at < 8000; at += 8)
		sum = _mm256_fmadd_ps(_mm256_loadu_ps(values + at), _mm256_set1_ps(1.5f), sum);
	float parts[8];
	_mm256_storeu_ps(parts, sum);
	printf("%.9g %.9g\n", (double)parts[0], (double)parts[7]);
}

__attribute__((target("avx512f"))) static void widest_sum(void)
{
	__m512i sum = _mm512_setzero_si512();
	for (int at = 0; at < 1000; at++)
		sum = _mm512_mask_add_epi64(sum, (__mmask8)at, sum, _mm512_set1_epi64(at));
	printf("%lld\n", (long long)_mm512_reduce_add_epi64(sum));
}

static void vectors(int count, char **arguments)
{
	(void)count, (void)arguments;
	__builtin_cpu_init();
	printf("sse4.2 %d, popcnt %d, avx %d, avx2 %d, fma %d, bmi2 %d, avx512f %d\n", !!__builtin_cpu_supports("sse4.2"), !!__builtin_cpu_supports("popcnt"),
		   !!__builtin_cpu_supports("avx"), !!__builtin_cpu_supports("avx2"), !!__builtin_cpu_supports("fma"), !!__builtin_cpu_supports("bmi2"),
		   !!__builtin_cpu_supports("avx512f"));
	if (__builtin_cpu_supports("avx2"))
		HOLDS(keep_avx());
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		wide_sum();
	if (__builtin_cpu_supports("avx512f"))
		widest_sum();
}

static jmp_buf back;

static __attribute__((noinline)) void leap(int depth)
{
	volatile char frame[100];
	frame[0] = (char)depth;
	if (depth > 0)
		leap(depth - 1);
	else
		longjmp(back, 42);
	frame[1] = frame[0];
}

static void jumps(int count, char **arguments)
{
	(void)count, (void)arguments;
	volatile int tries = 0;
	int value = setjmp(back);
	if (++tries < 1000)
		leap(tries % 50);
	HOLDS(value == 42 && tries == 1000);
	sigjmp_buf with_mask;
	volatile int again = 0;
	int from = sigsetjmp(with_mask, 1);
	if (!again++)
		siglongjmp(with_mask, 7);
	HOLDS(from == 7 && again == 2);
}

static int by_value(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	return (a > b) - (a < b);
}

// The C library selects its string functions by CPU features: each must agree with the plain loop.
static void strings(int count, char **arguments)
{
	(void)count, (void)arguments;
	static unsigned char from[5000], to[5000], expected[5000];
	uint32_t seed = 1;
	bool same = true;
	for (int round = 0; round < 3000; round++) {
		for (int at = 0; at < 5000; at += 1 + (round & 7))
			from[at] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24 | 1);
		size_t start = seed >> 8 & 63, size = seed >> 16 & 4095, target = seed >> 4 & 63;
		for (size_t at = 0; at < size; at++)
			expected[at] = from[start + at];
		memset(to, 0, sizeof to);
		memcpy(to + target, from + start, size);
		same &= !memcmp(to + target, expected, size) && to[target + size] == 0 && strlen((char *)to + target) == size;
		same &= memchr(to + target, 0, size + 1) == to + target + size && !strchr((char *)to + target, 0) == 0;
		memmove(to + target + 13, to + target, size);
		same &= !memcmp(to + target + 13, expected, size);
		if (size)
			same &= strrchr((char *)expected, expected[size - 1]) != NULL;
	}
	HOLDS(same);
	static uint32_t numbers[200000];
	uint64_t before = 0, after = 0;
	bool ordered = true;
	for (int at = 0; at < 200000; at++)
		before += numbers[at] = seed = seed * 1664525 + 1013904223;
	qsort(numbers, 200000, sizeof *numbers, by_value);
	for (int at = 0; at < 200000; at++) {
		after += numbers[at];
		ordered &= at == 0 || numbers[at - 1] <= numbers[at];
	}
	HOLDS(ordered && before == after);
	HOLDS(bsearch(&numbers[777], numbers, 200000, sizeof *numbers, by_value) != NULL);
	printf("%" PRIu32 " %" PRIu32 "\n", numbers[0], numbers[100000]);
	HOLDS(wcslen(L"wide \u00e9") == 6 && strstr("the aspen grove", "grove") && strcasecmp("Aspen", "aSPEN") == 0);
}

static void say_last(void)
{
	puts("said at exit");
}

static void leaving(int count, char **arguments)
{
	atexit(say_last);
	printf("buffered until the end");
	exit(count ? atoi(arguments[0]) : 0);
}

static const struct part PARTS[] = {
	{"formats", formats}, {"floats", floats}, {"vectors", vectors}, {"jumps", jumps}, {"strings", strings}, {"leaving", leaving}, {0},
};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
