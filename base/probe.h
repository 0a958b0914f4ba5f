/* SPDX-License-Identifier: Apache-2.0 */
/*
 * USDT probes of provider `cnre`: places that bpftrace, perf or cnre-inspect attach to in a running process. cnre-probes(7)
 * says what each one means, base/probes.def lists them.
 *
 *   CNRE_PROBE(evict, model, layer, expert, bytes);
 *
 * Every argument is an integer of 32 or 64 bits, and its expression has no side effects: it is computed only while somebody
 * is attached. A probe that nobody watches is one load and one branch. -DCNRE_NO_PROBES compiles none of them, for
 * measuring what that costs (make bench B=probes).
 */
#ifndef CNRE_BASE_PROBE_H
#define CNRE_BASE_PROBE_H

#ifndef CNRE_NO_PROBES

#define _SDT_HAS_SEMAPHORES 1
#define SDT_USE_VARIADIC 1
/* Registers and constants only: how a compiler writes an operand in memory, not every reader of the notes understands. */
#define STAP_SDT_ARG_CONSTRAINT nr
#include <sys/sdt.h>

/*
 * How many are attached; the kernel counts it up and down in the page of the process, hence volatile. Hidden: libcnre and a
 * program that has the archives of it each have words of their own, and the note beside a probe names the right one.
 */
#define CNRE_PROBE_NAME(name, count)                                                                                  \
	extern volatile unsigned short cnre_##name##_semaphore __attribute__((visibility("hidden")));                 \
	enum { cnre_probe_arguments_##name = count };
#include "base/probes.def"
#undef CNRE_PROBE_NAME

/* For work that only a probe needs, such as reading the clock. */
#define CNRE_PROBE_ATTACHED(name) __builtin_expect(cnre_##name##_semaphore != 0, 0)

#define CNRE_PROBE(name, ...)                                                                                         \
	do {                                                                                                          \
		_Static_assert(_SDT_NARG(0, __VA_ARGS__) == cnre_probe_arguments_##name, "as many as base/probes.def says"); \
		if (CNRE_PROBE_ATTACHED(name))                                                                        \
			STAP_PROBEV(cnre, name, __VA_ARGS__);                                                         \
	} while (0)

#else

/* Never called: so that what only a probe uses is used. */
static inline void cnre_probe_nothing(int first, ...)
{
	(void)first;
}

#define CNRE_PROBE_ATTACHED(name) 0
#define CNRE_PROBE(name, ...)                                                                                         \
	do {                                                                                                          \
		if (0)                                                                                                \
			cnre_probe_nothing(0, __VA_ARGS__);                                                           \
	} while (0)

#endif

#endif
