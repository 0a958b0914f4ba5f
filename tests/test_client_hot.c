/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client/hot.h: who finds everything resident asks the kernel for nothing, with every probe of the library attached as without;
 * in VRAM a release alone does, once. A child attaches, looks everything up once, and counts what it calls from then on.
 */
#include "base/probe.h"
#include "tests/standin/fake_import.h"
#include "tests/support/attached.h"
#include "tests/support/child.h"
#include "tests/support/vram_attached.h"

#include <criterion/criterion.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef SYS_poll
#define POLL_CALL SYS_poll
#else
#define POLL_CALL SYS_ppoll /* what poll() calls there */
#endif

TestSuite(client_hot, .init = fake_import_reset, .timeout = 60);

enum { ROUNDS = 20000, RESIDENT = 4, IN_VRAM = 8 }; /* the access log goes round many times */

struct hot {
	const struct vram_attached *attached;
	int is_attached, is_checked;      /* probes; cookies */
	int in_vram;                      /* looks up there, too */
	int is_noisy;                     /* one call on purpose */
	volatile int *calls, *first;      /* shared: how many, and which came first */
};

static volatile int *counted;

static void count_call(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	if (counted[0]++ == 0)
		counted[1] = info->si_syscall;
}

/* Every call from now on is a signal, but for the end, and for the return from that signal. */
static int watch_calls(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the call's number */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	const struct sock_fprog program = {sizeof code / sizeof code[0], code};
	const struct sigaction action = {.sa_sigaction = count_call, .sa_flags = SA_SIGINFO};

	return sigaction(SIGSYS, &action, NULL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0;
}

/* What the kernel writes for whoever attaches. */
static void attach_probes(void)
{
	cnre_acquire_miss_semaphore = cnre_acquire_join_semaphore = cnre_acquire_done_semaphore = 1;
	cnre_lease_taken_semaphore = cnre_lease_released_semaphore = cnre_kv_match_semaphore = 1;
}

/* 1: everything was there, as a hit. */
static int look_up(struct cnre *client, int in_vram)
{
	static const uint32_t experts[RESIDENT] = {0, 1, 2, 3};
	struct cnre_expert expert[RESIDENT];
	uint8_t tier[RESIDENT];
	struct cnre_batch *batch;
	int r = cnre_batch_begin(client, 0, experts, RESIDENT, 1, &batch);

	for (uint32_t i = 0; r == 0 && i < RESIDENT; i++)
		r = cnre_batch_wait(batch, i, -1, &expert[i]) < 0 || expert[i].flags != CNRE_WAS_RESIDENT;
	if (r != 0 || cnre_batch_end(batch) < 0)
		return 0;
	for (uint32_t i = 0; r == 0 && i < RESIDENT; i++)
		r = cnre_release(client, &expert[i]);
	for (uint32_t i = 0; r == 0 && i < RESIDENT; i++)
		r = cnre_acquire(client, 0, i, -1, &expert[0]) < 0 || expert[0].flags != CNRE_WAS_RESIDENT ||
		    cnre_release(client, &expert[0]) < 0;
	if (r == 0 && in_vram)
		r = cnre_acquire_vram(client, 0, IN_VRAM, 0, -1, &expert[0]) < 0 || expert[0].flags != (CNRE_IN_VRAM | CNRE_WAS_RESIDENT) ||
		    cnre_release(client, &expert[0]) < 0;
	if (r == 0)
		r = cnre_resident(client, 0, experts, RESIDENT, tier);
	cnre_token_end(client, 1);
	return r == 0;
}

static int run(void *argument)
{
	const struct hot *hot = argument;
	struct cnre *client;

	(void)setenv("CNRE_CHECK", hot->is_checked ? "1" : "0", 1);
	if (hot->is_attached)
		attach_probes();
	if (vram_attached_again(hot->attached, CNRE_WANT_VRAM, &client) < 0)
		return 2;
	if (!look_up(client, hot->in_vram)) /* what is opened and allocated once */
		return 3;
	counted = hot->calls;
	if (watch_calls())
		return 4;
	if (hot->is_noisy)
		(void)getppid();
	for (uint32_t i = 0; i < ROUNDS; i++)
		if (!look_up(client, hot->in_vram))
			return 5;
	return 0;
}

static void count_calls(struct hot *hot)
{
	volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct vram_attached a;
	int r;

#ifdef __SANITIZE_ADDRESS__
	cr_skip_test("the sanitizer makes calls of its own");
#endif
	a = vram_attached_start(NULL, CNRE_WANT_VRAM);
	cr_assert_neq((void *)shared, MAP_FAILED);
	for (uint32_t i = 0; i < RESIDENT; i++)
		fake_host_fill(a.host, i);
	fake_vram_fill(a.fake, IN_VRAM, 0);
	hot->attached = &a;
	hot->calls = shared;
	hot->first = shared + 1;
	r = child_run(run, hot);
	vram_attached_stop(&a);
	if (r == 4)
		cr_skip("no seccomp filters here");
	cr_assert_eq(r, 0, "%d", r);
}

Test(client_hot, a_hit_makes_no_system_call)
{
	struct hot hot = {.is_checked = 0};

	count_calls(&hot);
	cr_expect_eq(*hot.calls, 0, "%d calls, number %d first", *hot.calls, *hot.first);
}

Test(client_hot, nor_with_a_cookie_for_each_lease)
{
	struct hot hot = {.is_checked = 1};

	count_calls(&hot);
	cr_expect_eq(*hot.calls, 0, "%d calls, number %d first", *hot.calls, *hot.first);
}

Test(client_hot, nor_with_every_probe_attached)
{
	struct hot hot = {.is_attached = 1};

	count_calls(&hot);
	cr_expect_eq(*hot.calls, 0, "%d calls, number %d first", *hot.calls, *hot.first);
}

/* Whether the manager is dead, by then: the pidfd of its that came with the table. */
Test(client_hot, of_a_lease_in_vram_the_release_makes_one)
{
	struct hot hot = {.in_vram = 1, .is_attached = 1};

	count_calls(&hot);
	cr_expect_eq(*hot.calls, ROUNDS, "%d calls", *hot.calls);
	cr_expect_eq(*hot.first, POLL_CALL, "number %d", *hot.first);
}

Test(client_hot, a_call_that_is_made_is_counted)
{
	struct hot hot = {.is_noisy = 1};

	count_calls(&hot);
	cr_expect_eq(*hot.calls, 1);
	cr_expect_eq(*hot.first, SYS_getppid);
}
