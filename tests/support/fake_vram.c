/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_vram.h. One lock: the test's threads and the host's thread of sockets. */
#include "tests/support/fake_vram.h"

#include "shm/futex.h"
#include "shm/ledger.h"
#include "shm/segment.h"
#include "shm/wire.h"
#include "shm/word.h"
#include "tests/standin/fake_import.h"
#include "tests/support/child.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SESSIONS_MAX 8u
#define SLAB_BYTES 4096u
#define INCARNATIONS_MAX 8u
#define MEMORIES_MAX 32u

struct session {
	uint32_t number;
	struct cnre_segment ledger;
};

struct incarnation {
	struct cnre_segment directory;
	struct session session[SESSIONS_MAX];
	pid_t exporter;
	int pidfd;
};

/*
 * Mapped twice, as everything that two processes share: the client reads at one address, the device's side writes at the other.
 * The thread sanitizer knows words by their address, and would not see that the two sides agree by words of other mappings.
 */
struct memory {
	uint32_t *device;
	const char *client;
};

struct fake_vram {
	struct fake_vram_setup setup;
	pthread_mutex_t lock;
	struct incarnation incarnation[INCARNATIONS_MAX];
	uint32_t incarnations, opens, next_id, memories;
	struct memory memory[FAKE_VRAM_ARENAS], every[MEMORIES_MAX];
};

#define MUST(e) ((e) ? (void)0 : fail(#e, __LINE__))

static void fail(const char *what, int line)
{
	(void)fprintf(stderr, "fake_vram: line %d: %s (%s)\n", line, what, strerror(errno));
	abort();
}

static struct incarnation *now(struct fake_vram *vram)
{
	return &vram->incarnation[vram->incarnations - 1];
}

static struct cnre_vram_directory *directory_of(struct fake_vram *vram)
{
	return now(vram)->directory.base;
}

static int only_wait(void *context)
{
	(void)context;
	for (;;)
		(void)pause();
	return 0;
}

static struct memory make_memory(uint64_t bytes)
{
	int fd = memfd_create("fake-vram", MFD_CLOEXEC);
	struct memory memory;

	MUST(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	memory.device = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memory.client = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	MUST(memory.device != MAP_FAILED && memory.client != MAP_FAILED);
	(void)close(fd);
	return memory;
}

static void free_memory(struct fake_vram *vram, struct memory memory)
{
	(void)munmap(memory.device, fake_vram_bytes(vram) + 4096);
	(void)munmap((void *)memory.client, fake_vram_bytes(vram) + 4096);
}

static void make_arena(struct fake_vram *vram, uint32_t index)
{
	struct cnre_vram_arena *arena = &directory_of(vram)->arena[index];
	uint64_t bytes = fake_vram_bytes(vram);

	MUST(vram->memories < MEMORIES_MAX);
	vram->memory[index] = make_memory(bytes + 4096);
	vram->every[vram->memories++] = vram->memory[index];
	for (uint64_t i = 0; i < bytes / sizeof(uint32_t); i++)
		vram->memory[index].device[i] = (uint32_t)(i * sizeof(uint32_t) / SLAB_BYTES);
	arena->id = ++vram->next_id;
	arena->bytes = vram->setup.said_arena_bytes != 0 ? vram->setup.said_arena_bytes : bytes;
	arena->local = (uint64_t)(uintptr_t)vram->memory[index].client;
	fake_import_fill_handle(arena->handle, vram->memory[index].client);
	if (vram->setup.exported != NULL) {
		memcpy(arena->handle, vram->setup.exported->handle[index], sizeof arena->handle);
		arena->local = vram->setup.exported->local[index];
	}
	atomic_store_explicit(&arena->state, CNRE_ARENA_LIVE, memory_order_release);
}

static void make_segment(struct cnre_segment *segment, const char *name, enum cnre_segment_kind kind, uint64_t bytes, unsigned flags)
{
	MUST(cnre_segment_create(segment, name, bytes, CNRE_BACKING_4K, -1, flags) == 0);
	cnre_segment_fill_header(segment->base, kind, bytes);
}

static void begin_incarnation(struct fake_vram *vram)
{
	struct cnre_vram_directory *directory;
	struct incarnation *incarnation;

	MUST(vram->incarnations < INCARNATIONS_MAX);
	incarnation = &vram->incarnation[vram->incarnations++];
	incarnation->exporter = vram->setup.exported != NULL ? vram->setup.exported->exporter : child_start(only_wait, NULL);
	MUST(incarnation->exporter > 0);
	incarnation->pidfd = (int)syscall(SYS_pidfd_open, incarnation->exporter, 0);
	MUST(incarnation->pidfd >= 0);
	make_segment(&incarnation->directory, "fake-vram-directory", CNRE_SEGMENT_VRAM_DIRECTORY,
		     sizeof *directory + vram->setup.object_count * sizeof(struct cnre_entry), 0);
	directory = incarnation->directory.base;
	directory->object_count = vram->setup.said_objects != 0 ? vram->setup.said_objects : vram->setup.object_count;
	directory->device = FAKE_VRAM_DEVICE;
	fake_import_fill_uuid(directory->uuid, vram->setup.ordinal + (vram->setup.lies_about_uuid ? 7 : 0));
	if (vram->setup.is_local)
		fake_import_fill_token(directory->token);
	if (vram->setup.exported != NULL) {
		memcpy(directory->uuid, vram->setup.exported->uuid, sizeof directory->uuid);
		memcpy(directory->token, vram->setup.exported->token, sizeof directory->token);
	}
	atomic_store_explicit(&directory->state, CNRE_VRAM_SERVING, memory_order_release);
	for (uint32_t i = 0; i < FAKE_VRAM_ARENAS; i++)
		make_arena(vram, i);
	cnre_segment_publish(&directory->header);
}

static void end_incarnation(struct incarnation *incarnation)
{
	(void)kill(incarnation->exporter, SIGKILL);
	(void)child_wait(incarnation->exporter);
	(void)close(incarnation->pidfd);
	for (uint32_t i = 0; i < SESSIONS_MAX; i++)
		if (incarnation->session[i].number != 0)
			cnre_segment_close(&incarnation->session[i].ledger);
	cnre_segment_close(&incarnation->directory);
}

struct fake_vram *fake_vram_start(const struct fake_vram_setup *setup)
{
	struct fake_vram *vram = calloc(1, sizeof *vram);

	MUST(vram != NULL);
	if (setup != NULL)
		vram->setup = *setup;
	if (vram->setup.object_count == 0)
		vram->setup.object_count = 64;
	MUST(pthread_mutex_init(&vram->lock, NULL) == 0);
	begin_incarnation(vram);
	return vram;
}

void fake_vram_stop(struct fake_vram *vram)
{
	for (uint32_t i = 0; i < vram->incarnations; i++)
		end_incarnation(&vram->incarnation[i]);
	for (uint32_t i = 0; i < vram->memories; i++)
		free_memory(vram, vram->every[i]);
	(void)pthread_mutex_destroy(&vram->lock);
	free(vram);
}

/* ---- messages ---- */

static struct session *find_session(struct fake_vram *vram, uint32_t number)
{
	struct session *session = now(vram)->session;
	uint32_t i = 0;

	while (i < SESSIONS_MAX && session[i].number != 0 && session[i].number != number)
		i++;
	MUST(i < SESSIONS_MAX);
	if (session[i].number == 0) {
		make_segment(&session[i].ledger, "fake-vram-ledger", CNRE_SEGMENT_VRAM_LEDGER,
			     sizeof(struct cnre_vram_ledger) + vram->setup.object_count * sizeof(uint64_t), CNRE_SEGMENT_CLIENT_WRITES);
		cnre_segment_publish(session[i].ledger.base);
		session[i].number = number;
	}
	return &session[i];
}

static void answer_open(struct fake_vram *vram, int socket, uint32_t session_number, const struct cnre_wire_vram_open *open)
{
	struct cnre_wire_vram_opened opened = {.status = vram->setup.open_status, .device = FAKE_VRAM_DEVICE};
	unsigned char uuid[GPU_UUID_BYTES];
	int fds[CNRE_VRAM_FD_COUNT];
	size_t fd_count = 0;

	if (vram->setup.exported != NULL)
		memcpy(uuid, vram->setup.exported->uuid, sizeof uuid);
	else
		fake_import_fill_uuid(uuid, vram->setup.ordinal);
	if (vram->opens++ < vram->setup.ignored_opens)
		return;
	if (opened.status == 0 && memcmp(uuid, open->uuid, sizeof uuid) != 0)
		opened.status = -ENODEV;
	if (vram->setup.said_device != 0)
		opened.device = vram->setup.said_device;
	if (opened.status == 0) {
		fds[CNRE_VRAM_FD_DIRECTORY] = cnre_segment_reopen_readonly(&now(vram)->directory);
		fds[CNRE_VRAM_FD_LEDGER] = find_session(vram, session_number)->ledger.fd;
		fds[CNRE_VRAM_FD_EXPORTER] = vram->setup.sends_no_pidfd ? fds[CNRE_VRAM_FD_LEDGER] : now(vram)->pidfd;
		fd_count = CNRE_VRAM_FD_COUNT;
	}
	cnre_wire_fill(&opened.header, CNRE_WIRE_VRAM_OPENED, open->header.id, sizeof opened);
	(void)cnre_wire_send(socket, &opened, sizeof opened, fds, fd_count);
	if (fd_count > 0)
		(void)close(fds[CNRE_VRAM_FD_DIRECTORY]);
}

int fake_vram_answer(struct fake_vram *vram, int socket, uint32_t session, const void *message)
{
	struct cnre_wire_vram_open open;

	memcpy(&open.header, message, sizeof open.header);
	if (open.header.type != CNRE_WIRE_VRAM_OPEN)
		return 0;
	memcpy(&open, message, sizeof open);
	(void)pthread_mutex_lock(&vram->lock);
	answer_open(vram, socket, session, &open);
	(void)pthread_mutex_unlock(&vram->lock);
	return 1;
}

/* ---- what it saw ---- */

uint32_t fake_vram_opens(struct fake_vram *vram)
{
	uint32_t opens;

	(void)pthread_mutex_lock(&vram->lock);
	opens = vram->opens;
	(void)pthread_mutex_unlock(&vram->lock);
	return opens;
}

static uint64_t sum_locked(struct fake_vram *vram, uint32_t object)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
		const struct session *session = &now(vram)->session[i];

		if (session->number != 0)
			sum += cnre_ledger_scan(&((struct cnre_vram_ledger *)session->ledger.base)->word[object]);
	}
	return sum;
}

static uint64_t sum_of(struct fake_vram *vram, uint32_t object)
{
	uint64_t sum;

	(void)pthread_mutex_lock(&vram->lock);
	sum = sum_locked(vram, object);
	(void)pthread_mutex_unlock(&vram->lock);
	return sum;
}

uint32_t fake_vram_leases(struct fake_vram *vram, uint32_t object)
{
	return CNRE_LEDGER_LEASES(sum_of(vram, object));
}

uint32_t fake_vram_accesses(struct fake_vram *vram, uint32_t object)
{
	return CNRE_LEDGER_ACCESSES(sum_of(vram, object));
}

static int is_open_locked(struct fake_vram *vram, uint32_t arena)
{
	int is_open = 0;

	for (uint32_t i = 0; i < SESSIONS_MAX; i++)
		if (now(vram)->session[i].number != 0)
			is_open |= cnre_vram_is_open(now(vram)->session[i].ledger.base, arena);
	return is_open;
}

int fake_vram_is_open(struct fake_vram *vram, uint32_t arena)
{
	int is_open;

	(void)pthread_mutex_lock(&vram->lock);
	is_open = is_open_locked(vram, arena);
	(void)pthread_mutex_unlock(&vram->lock);
	return is_open;
}

const char *fake_vram_memory(struct fake_vram *vram, uint32_t arena)
{
	return vram->memory[arena].client;
}

uint64_t fake_vram_bytes(const struct fake_vram *vram)
{
	return (uint64_t)vram->setup.object_count * SLAB_BYTES;
}

/* ---- what it does ---- */

static uint32_t word_of(struct fake_vram *vram, uint32_t object)
{
	return atomic_load_explicit(&directory_of(vram)->entry[object].state, memory_order_seq_cst);
}

static void set_state(struct fake_vram *vram, uint32_t object, uint32_t generation, enum cnre_state state)
{
	struct cnre_entry *entry = &directory_of(vram)->entry[object];

	atomic_store_explicit(&entry->state, cnre_word_pack(generation, CNRE_LOAD_OK, state), memory_order_seq_cst);
	(void)cnre_futex_wake_all(&entry->state);
}

void fake_vram_fill(struct fake_vram *vram, uint32_t object, uint32_t arena)
{
	struct cnre_entry *entry = &directory_of(vram)->entry[object];
	uint32_t generation = cnre_word_generation(word_of(vram, object));

	atomic_store_explicit(&entry->place, cnre_place_pack(arena, (uint64_t)object * SLAB_BYTES), memory_order_relaxed);
	set_state(vram, object, generation, CNRE_STATE_LOADING);
	set_state(vram, object, generation, CNRE_STATE_READY);
}

void fake_vram_store_state(struct fake_vram *vram, uint32_t object, enum cnre_state state)
{
	set_state(vram, object, cnre_word_generation(word_of(vram, object)), state);
}

int fake_vram_evict(struct fake_vram *vram, uint32_t object)
{
	struct cnre_entry *entry = &directory_of(vram)->entry[object];
	uint32_t generation = cnre_word_generation(word_of(vram, object));
	int is_leased;

	cnre_ledger_store_evicting(entry, cnre_word_pack(generation, CNRE_LOAD_OK, CNRE_STATE_EVICTING));
	is_leased = fake_vram_leases(vram, object) > 0;
	set_state(vram, object, generation + !is_leased, is_leased ? CNRE_STATE_READY : CNRE_STATE_ABSENT);
	return !is_leased;
}

void fake_vram_close_arena(struct fake_vram *vram, uint32_t arena)
{
	atomic_store_explicit(&directory_of(vram)->arena[arena].state, CNRE_ARENA_CLOSING, memory_order_seq_cst);
}

void fake_vram_renew_arena(struct fake_vram *vram, uint32_t arena)
{
	make_arena(vram, arena);
}

int fake_vram_free_arena(struct fake_vram *vram, uint32_t arena)
{
	if (fake_vram_is_open(vram, arena))
		return 0;
	for (uint32_t i = 0; i < vram->memories; i++)
		if (vram->every[i].client == vram->memory[arena].client)
			vram->every[i] = vram->every[--vram->memories];
	free_memory(vram, vram->memory[arena]);
	atomic_store_explicit(&directory_of(vram)->arena[arena].state, CNRE_ARENA_NONE, memory_order_seq_cst);
	return 1;
}

void fake_vram_write(struct fake_vram *vram, uint32_t object, uint32_t arena, uint32_t value)
{
	uint32_t *slab = vram->memory[arena].device + (uint64_t)object * SLAB_BYTES / sizeof(uint32_t);

	for (uint32_t i = 0; i < SLAB_BYTES / sizeof *slab; i++)
		slab[i] = value;
}

void fake_vram_lose(struct fake_vram *vram)
{
	atomic_store_explicit(&directory_of(vram)->state, CNRE_VRAM_LOST, memory_order_seq_cst);
	for (uint32_t i = 0; i < vram->setup.object_count; i++)
		set_state(vram, i, cnre_word_generation(word_of(vram, i)) + 1, CNRE_STATE_ABSENT);
}

void fake_vram_kill_exporter(struct fake_vram *vram)
{
	siginfo_t info;

	(void)kill(now(vram)->exporter, SIGKILL);
	(void)waitid(P_PID, (id_t)now(vram)->exporter, &info, WEXITED | WNOWAIT);
}

void fake_vram_succeed(struct fake_vram *vram)
{
	(void)pthread_mutex_lock(&vram->lock);
	begin_incarnation(vram);
	(void)pthread_mutex_unlock(&vram->lock);
}

void fake_vram_set_status(struct fake_vram *vram, int32_t status)
{
	(void)pthread_mutex_lock(&vram->lock);
	vram->setup.open_status = status;
	(void)pthread_mutex_unlock(&vram->lock);
}
