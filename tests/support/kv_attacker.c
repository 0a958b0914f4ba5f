/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of a KV namespace; see kv_attacker.h. */
#include "tests/support/kv_attacker.h"

#include "base/clock.h"
#include "shm/futex.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_MS 20000

static void *map(int fd, int protection, uint64_t *ret_bytes)
{
	struct stat status;
	void *base;

	if (fstat(fd, &status) < 0)
		return NULL;
	*ret_bytes = (uint64_t)status.st_size;
	base = mmap(NULL, (size_t)status.st_size, protection, MAP_SHARED, fd, 0);
	return base == MAP_FAILED ? NULL : base;
}

/* The answer's bytes, and up to CNRE_WIRE_FDS_MAX descriptors. */
static int ask(struct attacker *attacker, const void *message, size_t bytes, char answer[CNRE_WIRE_MESSAGE_MAX],
	       int *fds, size_t *count)
{
	int r = cnre_wire_send(attacker->socket, message, bytes, NULL, 0);

	*count = 0;
	if (r == 0)
		r = cnre_wire_receive(attacker->socket, answer, fds, count);
	return r <= 0 ? -EPIPE : 0;
}

int kv_attacker_open(struct kv_attacker *kv, struct attacker *attacker, const char name[CNRE_WIRE_KV_NAME_BYTES],
		     uint64_t block_bytes_max)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	const struct cnre_wire_kv_opened *opened = (const struct cnre_wire_kv_opened *)buffer;
	struct cnre_wire_kv_open message = {.is_named = name != NULL, .block_bytes_max = block_bytes_max};
	int fds[CNRE_WIRE_FDS_MAX], r;
	uint64_t bytes;
	size_t count;

	memset(kv, 0, sizeof *kv);
	kv->attacker = attacker;
	if (name != NULL)
		memcpy(message.kv_namespace, name, sizeof message.kv_namespace);
	cnre_wire_fill(&message.header, CNRE_WIRE_KV_OPEN, 3, sizeof message);
	r = ask(attacker, &message, sizeof message, buffer, fds, &count);
	if (r < 0)
		return r;
	memcpy(kv->message, opened->message, sizeof kv->message);
	if (opened->status != 0 || count != CNRE_KV_FD_COUNT)
		return opened->status != 0 ? opened->status : -EPIPE;
	kv->number = opened->number;
	memcpy(kv->fd, fds, sizeof kv->fd);
	kv->directory = map(kv->fd[CNRE_KV_FD_DIRECTORY], PROT_READ, &bytes);
	kv->channel = map(kv->fd[CNRE_KV_FD_CHANNEL], PROT_READ | PROT_WRITE, &bytes);
	kv->staging = map(kv->fd[CNRE_KV_FD_STAGING], PROT_READ | PROT_WRITE, &kv->staging_bytes);
	return kv->directory == NULL || kv->channel == NULL || kv->staging == NULL ? -ENOMEM : 0;
}

int kv_attacker_segments(struct attacker *attacker, uint32_t number, uint32_t first, int *ret_fd)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	struct cnre_wire_kv_segments message = {.number = number, .first = first};
	int fds[CNRE_WIRE_FDS_MAX], r;
	size_t count;

	cnre_wire_fill(&message.header, CNRE_WIRE_KV_SEGMENTS, 4, sizeof message);
	r = ask(attacker, &message, sizeof message, buffer, fds, &count);
	for (size_t i = 1; i < count; i++)
		(void)close(fds[i]);
	*ret_fd = count > 0 ? fds[0] : -1;
	return r < 0 ? r : ((const struct cnre_wire_kv_segments *)buffer)->status;
}

int kv_attacker_send_invalidate(struct attacker *attacker, uint32_t number, const unsigned char root[CNRE_KV_KEY_BYTES])
{
	struct cnre_wire_kv_invalidate message = {.number = number};

	memcpy(message.root, root, sizeof message.root);
	cnre_wire_fill(&message.header, CNRE_WIRE_KV_INVALIDATE, 5, sizeof message);
	return cnre_wire_send(attacker->socket, &message, sizeof message, NULL, 0);
}

int kv_attacker_invalidate(struct attacker *attacker, uint32_t number, const unsigned char root[CNRE_KV_KEY_BYTES])
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	int fds[CNRE_WIRE_FDS_MAX];
	size_t count = 0;
	int r = kv_attacker_send_invalidate(attacker, number, root);

	if (r == 0)
		r = cnre_wire_receive(attacker->socket, buffer, fds, &count);
	return r <= 0 ? -EPIPE : ((const struct cnre_wire_kv_invalidate *)buffer)->status;
}

struct cnre_kv_request kv_attacker_request(unsigned char root, int32_t seed, uint64_t bytes)
{
	struct cnre_kv_request request = {.kind = CNRE_KV_PUBLISH,
					  .count = 16,
					  .bytes = bytes,
					  .block_tokens = 16,
					  .media_first = 16,
					  .compute_ns = 1000000};

	memset(request.root, root, sizeof request.root);
	memset(request.parent, root, sizeof request.parent);
	for (uint32_t i = 0; i < request.count; i++)
		request.token[i] = seed + (int32_t)i;
	return request;
}

void kv_attacker_post(struct kv_attacker *kv, uint32_t slot, const struct cnre_kv_request *request)
{
	struct cnre_channel *bell =
		mmap(NULL, CNRE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, kv->attacker->fd[CNRE_FD_CHANNEL], 0);
	struct cnre_kv_slot *posted = &kv->channel->slot[slot];
	uint64_t words[CNRE_KV_REQUEST_WORDS];
	struct cnre_kv_request copy = *request;

	copy.ticket = ++kv->next_ticket;
	memcpy(words, &copy, sizeof words);
	for (uint32_t i = 0; i < CNRE_KV_REQUEST_WORDS; i++)
		atomic_store_explicit(&posted->word[i], words[i], memory_order_relaxed);
	atomic_store_explicit(&posted->state, CNRE_KV_SLOT_SUBMITTED, memory_order_release);
	(void)atomic_fetch_or_explicit(&kv->channel->submitted, 1ull << slot, memory_order_seq_cst);
	if (bell == MAP_FAILED)
		return;
	(void)atomic_fetch_add_explicit(&bell->bell, 1, memory_order_seq_cst);
	(void)cnre_futex_wake_all(&bell->bell);
	(void)munmap(bell, CNRE_PAGE_BYTES);
}

int kv_attacker_await(struct kv_attacker *kv, uint32_t slot)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	for (int i = 0; i < AWAIT_MS; i++) {
		if (atomic_load_explicit(&kv->channel->slot[slot].state, memory_order_acquire) == CNRE_KV_SLOT_DONE)
			return atomic_load_explicit(&kv->channel->slot[slot].result, memory_order_relaxed);
		(void)nanosleep(&pause, NULL);
	}
	return -ETIMEDOUT;
}

int kv_attacker_publish(struct kv_attacker *kv, const struct cnre_kv_request *request)
{
	kv_attacker_post(kv, 0, request);
	return kv_attacker_await(kv, 0);
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Half of the words are small numbers: they reach deeper than random ones. */
static uint64_t garbage(uint64_t *state)
{
	uint64_t word = next_random(state);

	return (word & 1) != 0 ? next_random(state) : next_random(state) & 0x0000000300000007ull;
}

void kv_attacker_write_garbage(struct kv_attacker *kv, int milliseconds, unsigned seed, int ledger_too)
{
	uint64_t state = 0x9e3779b97f4a7c15ull ^ (seed + 1);
	_Atomic uint64_t *words = (_Atomic uint64_t *)kv->channel;
	uint64_t ledger_at = CNRE_KV_CHANNEL_LEDGER_OFF / sizeof *words, ledger_count = kv->directory->entry_count;
	uint64_t count = ledger_at + (ledger_too ? ledger_count : 0);
	int64_t end_ns = cnre_clock_now_ns() + milliseconds * CNRE_NS_PER_MS;

	for (uint32_t round = 0; cnre_clock_now_ns() < end_ns; round++) {
		/* A good request under the garbage: what is changed while it is copied is the interesting case. */
		struct cnre_kv_request request =
			kv_attacker_request(0xee, (int32_t)(round % 64), 4096 + round % 8 * 4096);

		kv_attacker_post(kv, round % CNRE_KV_SLOTS, &request);
		for (int i = 0; i < 256; i++)
			atomic_store_explicit(&words[next_random(&state) % count], garbage(&state),
					      memory_order_relaxed);
		for (uint32_t i = 0; i < CNRE_KV_SLOTS; i += 8)
			atomic_store_explicit(&kv->channel->slot[i].state, CNRE_KV_SLOT_SUBMITTED,
					      memory_order_relaxed);
		atomic_store_explicit(&kv->channel->submitted, next_random(&state), memory_order_release);
	}
}

void kv_attacker_pin(struct kv_attacker *kv, uint32_t part, uint32_t parts)
{
	_Atomic uint64_t *ledger = cnre_kv_ledger(kv->channel);

	for (uint32_t i = part; i < kv->directory->entry_count; i += parts)
		(void)atomic_fetch_add_explicit(&ledger[i], 1, memory_order_seq_cst);
}

void kv_attacker_unpin(struct kv_attacker *kv)
{
	_Atomic uint64_t *ledger = cnre_kv_ledger(kv->channel);

	for (uint32_t i = 0; i < kv->directory->entry_count; i++)
		atomic_store_explicit(&ledger[i], 0, memory_order_seq_cst);
}
