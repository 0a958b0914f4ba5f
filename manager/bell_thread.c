/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that sleep on bells; see bell_thread.h. A thread reads its words only under its group's lock, and sleeps
 * without it: the kernel then looks at an address that may be gone, which ends the sleep with EFAULT and no harm. A
 * change of the group moves its `control` word, which is the first of the words slept on.
 */
#include "manager/bell_thread.h"

#include "shm/futex.h"
#include "shm/layout.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORDS_MAX 127u /* FUTEX_WAITV_MAX is 128, and one is the control word */
#define GROUPS_MAX CNRE_SESSIONS_MAX

struct group {
	struct bell_threads *owner;
	pthread_mutex_t lock;
	pthread_t thread;
	int started, stopping;
	_Atomic uint32_t control;
	uint32_t count;
	const _Atomic uint32_t *word[WORDS_MAX];
	uint32_t slot[WORDS_MAX];
	uint32_t seen[WORDS_MAX];
};

struct bell_threads {
	struct loop *loop;
	struct loop_source source; /* the eventfd */
	int has_waitv;
	uint32_t words_per_group;
	uint32_t group_count;
	struct group *group[GROUPS_MAX];
};

static int waitv(struct futex_waitv *words, uint32_t count)
{
	return syscall(SYS_futex_waitv, words, count, 0, NULL, 0) < 0 ? -errno : 0;
}

/* Under the lock: notices what rang since the last look and lists what to sleep on. 1 if something rang. */
static int look(struct group *group, struct futex_waitv *words)
{
	int rang = 0;

	/* [B5] relaxed: the lock orders it; the kernel compares. */
	words[0] = (struct futex_waitv){.val = atomic_load_explicit(&group->control, memory_order_relaxed),
					.uaddr = (uint64_t)(uintptr_t)&group->control,
					.flags = FUTEX_32};
	for (uint32_t i = 0; i < group->count; i++) {
		/* [B6] relaxed: input from a client; any change is a ring. */
		uint32_t value = atomic_load_explicit(group->word[i], memory_order_relaxed);

		rang |= value != group->seen[i];
		group->seen[i] = value;
		words[i + 1] = (struct futex_waitv){
			.val = value, .uaddr = (uint64_t)(uintptr_t)group->word[i], .flags = FUTEX_32};
	}
	return rang;
}

static void sleep_on(struct group *group, struct futex_waitv *words, uint32_t count)
{
	if (group->owner->has_waitv)
		(void)waitv(words, count);
	else if (count > 1) /* a group of one: a removal wakes the bell itself; a slice bounds what a race could cost */
		(void)cnre_futex_wait((const _Atomic uint32_t *)(uintptr_t)words[1].uaddr, (uint32_t)words[1].val,
				      CNRE_WAIT_SLICE_NS);
	else
		(void)cnre_futex_wait(&group->control, (uint32_t)words[0].val, CNRE_WAIT_SLICE_NS);
}

static void *listen_group(void *argument)
{
	struct group *group = argument;
	struct futex_waitv words[WORDS_MAX + 1];

	for (;;) {
		uint32_t count;
		int rang;

		(void)pthread_mutex_lock(&group->lock);
		if (group->stopping)
			break;
		rang = look(group, words);
		count = group->count + 1;
		(void)pthread_mutex_unlock(&group->lock);
		if (rang)
			(void)eventfd_write(group->owner->source.fd, 1);
		else
			sleep_on(group, words, count);
	}
	(void)pthread_mutex_unlock(&group->lock);
	return NULL;
}

/* The group changed: its thread must look again. */
static void stir(struct group *group, const _Atomic uint32_t *word)
{
	/* [B7] relaxed: the kernel compares it under its own lock. */
	(void)atomic_fetch_add_explicit(&group->control, 1, memory_order_relaxed);
	(void)cnre_futex_wake_all(&group->control);
	if (word != NULL)
		(void)cnre_futex_wake_all(word);
}

static int start_group(struct bell_threads *threads, struct group **ret_group)
{
	struct group *group = calloc(1, sizeof *group);
	sigset_t all, before;
	int r;

	if (group == NULL)
		return -ENOMEM;
	group->owner = threads;
	(void)pthread_mutex_init(&group->lock, NULL);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&group->thread, NULL, listen_group, group);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0) {
		free(group);
		return -r;
	}
	threads->group[threads->group_count++] = group;
	*ret_group = group;
	return 0;
}

static void rang(struct loop_source *source, uint32_t events)
{
	eventfd_t ignored;

	(void)events;
	(void)eventfd_read(source->fd, &ignored); /* the core looks at every channel whenever it is awake */
}

int bell_threads_open(struct bell_threads **ret_threads, struct loop *loop)
{
	struct bell_threads *threads = calloc(1, sizeof *threads);
	int r;

	if (threads == NULL)
		return -ENOMEM;
	threads->loop = loop;
	threads->source = (struct loop_source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = rang};
	if (threads->source.fd < 0) {
		r = -errno;
		goto drop;
	}
	r = loop_add(loop, &threads->source, EPOLLIN);
	if (r < 0)
		goto drop_event;
	/* No words: -EINVAL where the call exists, -ENOSYS or -EPERM where it does not or is forbidden. */
	threads->has_waitv = waitv(NULL, 0) == -EINVAL;
	threads->words_per_group = threads->has_waitv ? WORDS_MAX : 1;
	*ret_threads = threads;
	return 0;

drop_event:
	(void)close(threads->source.fd);
drop:
	free(threads);
	return r;
}

void bell_threads_close(struct bell_threads *threads)
{
	if (threads == NULL)
		return;
	for (uint32_t i = 0; i < threads->group_count; i++) {
		struct group *group = threads->group[i];

		(void)pthread_mutex_lock(&group->lock);
		group->stopping = 1;
		stir(group, group->count > 0 ? group->word[0] : NULL);
		(void)pthread_mutex_unlock(&group->lock);
		(void)pthread_join(group->thread, NULL);
		(void)pthread_mutex_destroy(&group->lock);
		free(group);
	}
	loop_remove(threads->loop, &threads->source);
	(void)close(threads->source.fd);
	free(threads);
}

const char *bell_threads_way(const struct bell_threads *threads)
{
	return threads->has_waitv ? "futex_waitv" : "thread";
}

int bell_threads_add(struct bell_threads *threads, uint32_t slot, const _Atomic uint32_t *bell)
{
	struct group *group = NULL;
	uint32_t i;
	int r;

	for (i = 0; i < threads->group_count && group == NULL; i++)
		if (threads->group[i]->count < threads->words_per_group)
			group = threads->group[i];
	if (group == NULL) {
		if (threads->group_count == GROUPS_MAX)
			return -EAGAIN;
		r = start_group(threads, &group);
		if (r < 0)
			return r;
	}
	(void)pthread_mutex_lock(&group->lock);
	i = group->count++;
	group->word[i] = bell;
	group->slot[i] = slot;
	group->seen[i] = 0; /* a fresh channel's bell is 0; had it rung already, that is a ring to be told */
	stir(group, NULL);
	(void)pthread_mutex_unlock(&group->lock);
	return 0;
}

static void remove_at(struct group *group, uint32_t i)
{
	const _Atomic uint32_t *word = group->word[i];
	uint32_t last = --group->count;

	group->word[i] = group->word[last];
	group->slot[i] = group->slot[last];
	group->seen[i] = group->seen[last];
	stir(group, word);
}

void bell_threads_remove(struct bell_threads *threads, uint32_t slot)
{
	for (uint32_t g = 0; g < threads->group_count; g++) {
		struct group *group = threads->group[g];

		(void)pthread_mutex_lock(&group->lock);
		for (uint32_t i = 0; i < group->count; i++) {
			if (group->slot[i] == slot) {
				remove_at(group, i);
				break;
			}
		}
		(void)pthread_mutex_unlock(&group->lock);
	}
}
