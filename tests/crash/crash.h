/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Death at every crash point (base/crash.h): a small world runs, the process that comes to the point is killed there, and
 * then nothing may be lost. Points of a client: everything it held is free, and the manager and another client go on.
 * Points of the manager: the next incarnation takes over, and no client sees more than a pause.
 */
#ifndef CNRE_TESTS_CRASH_H
#define CNRE_TESTS_CRASH_H

#include "tests/support/daemon.h"

#include <stdint.h>

struct cnre;
struct truth;

#define CRASH_LAYERS 4u
#define CRASH_EXPERTS 24u
#define CRASH_SLAB_BYTES (3u * 64 * 64 * 2)
#define CRASH_RESERVE_SLABS 12u

enum crash_result { CRASH_OK, CRASH_FAILED, CRASH_NOT_REACHED, CRASH_SKIPPED };

struct crash {
	struct daemon daemon;
	struct truth *truth;
	char ram[32], low_ram[32];
	char kv_dir[128];                 /* of the points of prefixes */
	long long slab_bytes, reserved_slabs; /* of one expert, of the bystander */
	char once[128];                   /* exists: the point was reached and its process killed */
	char at[128], once_setting[160];  /* environment of who shall die */
	char reason[512];
};

/* ---- work.c: what clients do; reports by return value, so children may use it. 0, or a word for what failed ---- */
const char *crash_attach(const struct crash *crash, struct cnre **ret_client);
/* Everything once: hits, misses, polls, batches, prefetch, all bytes compared. Nothing is held in the end. */
const char *crash_work(const struct crash *crash, struct cnre *client, uint32_t seed);

/* ---- kv.c: the same for prefixes; NULL, or a word for what failed ---- */
int crash_is_kv(const char *point);
/* Publishes, matches, reads and compares; leaves one prefix pinned and one block staged. */
const char *crash_kv_work(struct cnre *client);
/* What is left is right, what is lost can be computed again, and nothing is pinned or forgotten for long. */
const char *crash_kv_judge(struct crash *crash, struct cnre *client);
enum crash_result crash_kv_point(struct crash *crash, const char *point, unsigned pass);

/* ---- worlds ---- */
enum crash_result crash_client_point(struct crash *crash, const char *point, unsigned pass);
enum crash_result crash_manager_point(struct crash *crash, const char *point, unsigned pass);
enum crash_result crash_drive_point(struct crash *crash, const char *point, unsigned pass); /* a load fails */
enum crash_result crash_listener_point(struct crash *crash, const char *point); /* its path goes */
enum crash_result crash_view_point(struct crash *crash, const char *point, unsigned pass); /* it prepares objects */
int crash_generate(struct crash *crash);  /* the checkpoint at daemon.model: 0 or -1 */
int crash_start_dying_manager(struct crash *crash, const char *point, unsigned pass); /* 0 or -1 with the reason */
void crash_client_world_close(struct crash *crash); /* the client points share one manager */

/* 1 when nobody is attached but `clients`, nothing is on its way, and after a reset only `kept` experts are resident. */
int crash_is_clean(struct crash *crash, long long clients, long long kept);
int crash_was_reached(const struct crash *crash);
void crash_set_point(struct crash *crash, const char *point, unsigned pass);

#endif
