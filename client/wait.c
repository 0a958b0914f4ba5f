/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for READY (R6-R9); see wait.h and access.h. */
#include "client/wait.h"

#include "base/clock.h"
#include "base/crash.h"
#include "client/access.h"
#include "client/connection.h"
#include "shm/futex.h"
#include "shm/ledger.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_LOOKS 32 /* looks between two readings of the clock */

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static int has_changed(const struct cnre_wait_word *words, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		/* [W1] relaxed: a look; whoever sees a change loads the word again under its own order. */
		if (atomic_load_explicit(words[i].word, memory_order_relaxed) != words[i].expected)
			return 1;
	return 0;
}

/* Doubles what paid and halves what did not. */
static void adapt_spin(struct cnre *client, uint32_t spin_ns, int paid)
{
	uint32_t next = paid ? spin_ns * 2 : spin_ns / 2;

	if (next < CNRE_SPIN_MIN_NS)
		next = CNRE_SPIN_MIN_NS;
	if (next > client->spin_limit_ns)
		next = client->spin_limit_ns;
	/* [W2] relaxed: an estimate; a lost update is as good. */
	atomic_store_explicit(&client->spin_ns, next, memory_order_relaxed);
}

int cnre_wait_spin(struct cnre *client, const struct cnre_wait_word *words, uint32_t count)
{
	/* [W3] relaxed: as [W2]. */
	uint32_t spin_ns = atomic_load_explicit(&client->spin_ns, memory_order_relaxed);
	int64_t end_ns;
	int changed = 0;

	if (client->spin_limit_ns == 0)
		return 0;
	end_ns = cnre_clock_now_ns() + spin_ns;
	do {
		for (int look = 0; look < SPIN_LOOKS && !changed; look++) {
			changed = has_changed(words, count);
			relax();
		}
	} while (!changed && cnre_clock_now_ns() < end_ns);
	adapt_spin(client, spin_ns, changed);
	return changed;
}

/* Kernels before 5.16 have no futex_waitv: then one word is slept on, and the others are looked at often. */
static int wait_many(const struct cnre_wait_word *words, uint32_t count, int64_t timeout_ns)
{
	struct futex_waitv waiters[CNRE_WAIT_WORDS_MAX];
	int64_t end_ns = cnre_clock_deadline_ns(timeout_ns);
	struct timespec end = {.tv_sec = end_ns / CNRE_NS_PER_S, .tv_nsec = end_ns % CNRE_NS_PER_S};

	for (uint32_t i = 0; i < count; i++)
		waiters[i] = (struct futex_waitv){
			.val = words[i].expected, .uaddr = (uintptr_t)words[i].word, .flags = FUTEX_32};
	if (syscall(SYS_futex_waitv, waiters, count, 0, &end, CLOCK_MONOTONIC) >= 0)
		return 0;
	if (errno == ETIMEDOUT)
		return -ETIMEDOUT;
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	if (timeout_ns > CNRE_WAIT_MANY_NS)
		timeout_ns = CNRE_WAIT_MANY_NS;
	return cnre_wait_any(words, 1, timeout_ns);
}

int cnre_wait_any(const struct cnre_wait_word *words, uint32_t count, int64_t timeout_ns)
{
	if (count == 1)
		return cnre_futex_wait(words->word, words->expected, timeout_ns) == -ETIMEDOUT ? -ETIMEDOUT : 0;
	if (count <= CNRE_WAIT_WORDS_MAX)
		return wait_many(words, count, timeout_ns);
	return wait_many(words, CNRE_WAIT_WORDS_MAX, timeout_ns < CNRE_WAIT_MANY_NS ? timeout_ns : CNRE_WAIT_MANY_NS);
}

void cnre_slice_begin(const struct cnre *client, struct cnre_slice *ret_slice)
{
	ret_slice->epoch = cnre_client_epoch(client);
	ret_slice->end_ns = cnre_clock_deadline_ns(CNRE_WAIT_SLICE_NS);
}

int64_t cnre_slice_sleep_ns(const struct cnre_slice *slice, int64_t left_ns)
{
	int64_t slice_ns = cnre_clock_left_ns(slice->end_ns);

	return left_ns < slice_ns ? left_ns : slice_ns;
}

/*
 * A slice ends by the clock, not by a sleep that nobody disturbed: signals that come more often than slices end would
 * hide the hang-up for ever. Adoption ends with a wake of every object's word, so its new epoch is seen at once.
 */
int cnre_slice_look(struct cnre *client, struct cnre_slice *slice, struct cnre_access_repost repost)
{
	int r;

	if (cnre_client_epoch(client) == slice->epoch && cnre_clock_left_ns(slice->end_ns) > 0)
		return 0;
	cnre_slice_begin(client, slice);
	r = cnre_connection_check(client);
	if (r < 0)
		return r;
	repost.post(repost.context);
	return 0;
}

int cnre_access_wait(struct cnre *client, struct cnre_access *access, int64_t deadline_ns,
		     struct cnre_access_repost repost)
{
	const struct cnre_entry *entry = &client->entry[access->object];
	int may_spin = 1;
	int gone = cnre_connection_is_gone(client) ? -EPIPE : 0;
	struct cnre_slice slice;

	cnre_slice_begin(client, &slice);
	for (;;) {
		uint32_t word = cnre_ledger_load_state(entry);
		struct cnre_wait_word wait = {.word = &entry->state, .expected = word};
		int was_seen = cnre_access_is_seen(access);
		int r = cnre_access_judge(access, word);
		int64_t left_ns;

		if (r != 0)
			return r < 0 ? r : 0;
		if (gone < 0)
			return gone;
		/* It was EVICTING at the first look and went: nobody has been asked for it yet. */
		if (!was_seen && cnre_access_is_seen(access))
			repost.post(repost.context);
		left_ns = cnre_clock_left_ns(deadline_ns);
		if (left_ns == 0)
			return cnre_connection_check(client) < 0 ? -EPIPE : -ETIMEDOUT;
		if (may_spin && cnre_wait_spin(client, &wait, 1))
			continue;
		may_spin = 0;
		CNRE_CRASH_POINT("wait-sleeping");
		(void)cnre_wait_any(&wait, 1, cnre_slice_sleep_ns(&slice, left_ns)); /* looked at again either way */
		/* One more look before it is an error: READY stays usable. */
		gone = cnre_slice_look(client, &slice, repost);
	}
}
