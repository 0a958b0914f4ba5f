/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu/import.h without a driver, for tests of the client library: a program that uses a function of this header gets these and
 * not those of gpu/. "Device memory" is host memory of the test, whose address a handle holds, so that what an expert's
 * pointers point at can be looked at. Streams are small numbers that pass, hang or fail as the test says.
 *
 * What a caller must not do aborts: an arena that is opened twice, closed twice, or closed while it is not open; a device that
 * is closed with arenas open; a point that is freed before it passed; any call in a forked child.
 */
#ifndef CNRE_TESTS_STANDIN_FAKE_IMPORT_H
#define CNRE_TESTS_STANDIN_FAKE_IMPORT_H

#include "gpu/import.h"

#include <string.h>

#define FAKE_IMPORT_STREAMS 32u

enum fake_stream { FAKE_STREAM_PASSES, FAKE_STREAM_HANGS, FAKE_STREAM_FAILS };

/* Everything as at first: one device, which works. */
void fake_import_reset(void);
void fake_import_set_devices(int count);
void fake_import_fail_load(int error);                 /* 0: no more */
void fake_import_fail_open(int error);                 /* of a device; likewise */
void fake_import_fail_arena(int error);                /* likewise */
void fake_import_fail_record(int error);
void fake_import_slow_arena(int64_t ns);               /* each opening takes so long */

void *fake_import_stream(unsigned number);             /* 3 and more; of the device number % 2 */
void fake_import_set_stream(unsigned number, enum fake_stream state);

/* What names a device, an arena and this process here; inline, so that who only needs a name gets none of these functions. */
static inline void fake_import_fill_uuid(unsigned char uuid[GPU_UUID_BYTES], int ordinal)
{
	memset(uuid, 0x30 + ordinal, GPU_UUID_BYTES);
}

static inline void fake_import_fill_handle(unsigned char handle[GPU_HANDLE_BYTES], const void *memory)
{
	memset(handle, 0, GPU_HANDLE_BYTES);
	memcpy(handle, &memory, sizeof memory);
}

static inline void fake_import_fill_token(unsigned char token[GPU_TOKEN_BYTES])
{
	memset(token, 0x77, GPU_TOKEN_BYTES);
}

uint32_t fake_import_calls(void);                      /* of any function but gpu_token */
uint32_t fake_import_opens(void);                      /* of arenas, so far */
uint32_t fake_import_open_arenas(void);                /* now */
uint32_t fake_import_open_devices(void);
uint32_t fake_import_points(void);                     /* recorded and not freed */
uint32_t fake_import_queries(void);

#endif
