/* SPDX-License-Identifier: Apache-2.0 */
/* See fake_import.h. */
#include "tests/standin/fake_import.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ARENAS_MAX 64

struct gpu_import {
	unsigned char uuid[GPU_UUID_BYTES];
	int ordinal;
	uint64_t arena[ARENAS_MAX];
	uint32_t arena_count;
};

struct gpu_point {
	unsigned stream;
	int last;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char token[GPU_TOKEN_BYTES];
static struct {
	int device_count, load_error, open_error, arena_error, record_error;
	int64_t arena_ns;
	enum fake_stream stream[FAKE_IMPORT_STREAMS];
	uint32_t calls, opens, open_arenas, open_devices, points, queries;
} fake = {.device_count = 1};

static _Atomic pid_t owner; /* the process whose calls these are; 0: nobody called yet */

#define MUST(e) ((e) ? (void)0 : fail(#e, __LINE__))

static void fail(const char *what, int line)
{
	(void)fprintf(stderr, "fake_import: line %d: %s\n", line, what);
	abort();
}

static void begin(void)
{
	pid_t nobody = 0;

	/* Before the lock, which a child may have got locked. */
	MUST(atomic_compare_exchange_strong(&owner, &nobody, getpid()) || nobody == getpid());
	(void)pthread_mutex_lock(&lock);
	fake.calls++;
}

static void end(void)
{
	(void)pthread_mutex_unlock(&lock);
}

/* ---- what the test says and sees ---- */

void fake_import_reset(void)
{
	(void)pthread_mutex_lock(&lock);
	memset(&fake, 0, sizeof fake);
	atomic_store(&owner, 0);
	fake.device_count = 1;
	(void)pthread_mutex_unlock(&lock);
}

#define SETTER(name, type, field) \
	void name(type value) \
	{ \
		(void)pthread_mutex_lock(&lock); \
		fake.field = value; \
		(void)pthread_mutex_unlock(&lock); \
	}
#define GETTER(name, field) \
	uint32_t name(void) \
	{ \
		uint32_t value; \
		(void)pthread_mutex_lock(&lock); \
		value = fake.field; \
		(void)pthread_mutex_unlock(&lock); \
		return value; \
	}

SETTER(fake_import_set_devices, int, device_count)
SETTER(fake_import_fail_load, int, load_error)
SETTER(fake_import_fail_open, int, open_error)
SETTER(fake_import_fail_arena, int, arena_error)
SETTER(fake_import_fail_record, int, record_error)
SETTER(fake_import_slow_arena, int64_t, arena_ns)
GETTER(fake_import_calls, calls)
GETTER(fake_import_opens, opens)
GETTER(fake_import_open_arenas, open_arenas)
GETTER(fake_import_open_devices, open_devices)
GETTER(fake_import_points, points)
GETTER(fake_import_queries, queries)

void *fake_import_stream(unsigned number)
{
	return (void *)(uintptr_t)number;
}

void fake_import_set_stream(unsigned number, enum fake_stream state)
{
	(void)pthread_mutex_lock(&lock);
	fake.stream[number] = state;
	(void)pthread_mutex_unlock(&lock);
}

/* ---- gpu/import.h ---- */

const unsigned char *gpu_token(void)
{
	fake_import_fill_token(token);
	return token;
}

int gpu_import_load(char message[GPU_MESSAGE_BYTES])
{
	int r;

	begin();
	r = fake.load_error;
	end();
	message[0] = '\0';
	return r;
}

int gpu_import_open(struct gpu_import **ret_import, int ordinal, char message[GPU_MESSAGE_BYTES])
{
	struct gpu_import *import = calloc(1, sizeof *import);
	int r;

	MUST(import != NULL);
	begin();
	r = ordinal < fake.device_count ? fake.open_error : -ENXIO;
	fake.open_devices += r == 0;
	end();
	message[0] = '\0';
	if (r < 0) {
		free(import);
		return r;
	}
	import->ordinal = ordinal;
	fake_import_fill_uuid(import->uuid, ordinal);
	*ret_import = import;
	return 0;
}

struct gpu_import *gpu_import_close(struct gpu_import *import)
{
	begin();
	MUST(import->arena_count == 0);
	fake.open_devices--;
	end();
	free(import);
	return NULL;
}

const unsigned char *gpu_import_uuid(const struct gpu_import *import)
{
	return import->uuid;
}

static uint32_t find(const struct gpu_import *import, uint64_t address)
{
	uint32_t i = 0;

	while (i < import->arena_count && import->arena[i] != address)
		i++;
	return i;
}

int gpu_import_arena(struct gpu_import *import, const unsigned char handle[GPU_HANDLE_BYTES],
		     const unsigned char exporter[GPU_TOKEN_BYTES], uint64_t local, uint64_t *ret_address)
{
	uint64_t address;
	struct timespec pause;
	int r;

	begin();
	r = fake.arena_error;
	pause = (struct timespec){.tv_nsec = fake.arena_ns};
	end();
	if (pause.tv_nsec > 0)
		(void)nanosleep(&pause, NULL);
	if (r < 0)
		return r;
	if (memcmp(exporter, gpu_token(), sizeof token) == 0) {
		*ret_address = local;
		return 0;
	}
	memcpy(&address, handle, sizeof address);
	begin();
	MUST(find(import, address) == import->arena_count && import->arena_count < ARENAS_MAX);
	import->arena[import->arena_count++] = address;
	fake.opens++;
	fake.open_arenas++;
	end();
	*ret_address = address;
	return 0;
}

int gpu_import_close_arena(struct gpu_import *import, const unsigned char exporter[GPU_TOKEN_BYTES], uint64_t address)
{
	uint32_t i;

	begin();
	if (memcmp(exporter, gpu_token(), sizeof token) != 0) {
		i = find(import, address);
		MUST(i < import->arena_count);
		import->arena[i] = import->arena[--import->arena_count];
		fake.open_arenas--;
	}
	end();
	return 0;
}

int gpu_point_record(struct gpu_import *import, void *stream, struct gpu_point **ret_point)
{
	struct gpu_point *point = calloc(1, sizeof *point);
	unsigned number = (unsigned)(uintptr_t)stream;
	int r;

	MUST(point != NULL);
	begin();
	r = number >= FAKE_IMPORT_STREAMS || (number > 2 && (int)(number % 2) != import->ordinal) ? -EINVAL : fake.record_error;
	fake.points += r == 0;
	end();
	if (r < 0) {
		free(point);
		return r;
	}
	point->stream = number;
	*ret_point = point;
	return 0;
}

int gpu_point_query(struct gpu_point *point)
{
	static const int said[] = {[FAKE_STREAM_PASSES] = 1, [FAKE_STREAM_HANGS] = 0, [FAKE_STREAM_FAILS] = -EIO};

	begin();
	point->last = said[fake.stream[point->stream]];
	fake.queries++;
	end();
	return point->last;
}

struct gpu_point *gpu_point_free(struct gpu_point *point)
{
	MUST(point->last != 0);
	begin();
	fake.points--;
	end();
	free(point);
	return NULL;
}
