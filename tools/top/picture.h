/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is shown: numbers taken out of a sample, and rates since the one before. A sample is JSON that a manager or a file
 * gave, so it is checked here, field by field, and everything is bounded. Pure.
 */
#ifndef CNRE_TOOLS_TOP_PICTURE_H
#define CNRE_TOOLS_TOP_PICTURE_H

#include "tools/top/options.h"

#include <jansson.h>
#include <stdint.h>

#define PICTURE_CLIENTS_MAX 1024u
#define PICTURE_DRIVES_MAX 64u
#define PICTURE_LAYERS_MAX 1024u
#define PICTURE_EXPERTS_MAX 131072u /* of all layers; layers beyond are shown without their experts */
#define PICTURE_HEAT_MAX 32         /* binary digits of uses */

struct picture_client {
	char name[32];
	uint64_t session, pid, leased, accesses, hits;
	double felt_wait_s;
	double lookups_s, hit_share, wait_s; /* a second; hit_share < 0: nothing was looked up */
};

struct picture_drive {
	char name[32], state[16];
	uint64_t bytes, reads, in_flight;
	double read_total_s;
	double bytes_s, read_s;           /* read_s < 0: nothing was read */
};

/* Of all GPUs. is_there 0: the manager has none, or is of a release before them; is_on 0: it was to have some, and has not. */
struct picture_vram {
	int is_there, is_on;
	uint32_t device_count, lost_count;
	uint64_t used_bytes, budget_bytes, experts, hits, uploads; /* of those that are not lost */
	uint64_t lost_device;             /* the number of the first that is lost */
	char reason[128];                 /* why; is_on 0: why there is none */
	double hit_share, uploads_s;      /* hit_share: of all lookups; < 0: not known */
};

struct picture_layer {
	uint32_t layer, experts, resident, in_vram; /* resident: in RAM */
	uint32_t first;                   /* of its experts in state and heat; has_map 0: they are not known */
	int has_map;
	uint64_t visits;
};

struct picture {
	char model[64], policy[32];
	double uptime_s, interval_s;      /* interval_s 0: there is no sample before, and there are no rates */
	uint64_t accesses, hits, loads, bytes_read, resident_bytes, budget_bytes, resident_objects, tokens;
	uint64_t loads_in_flight, loads_queued;
	double felt_wait_s;
	double lookups_s, hit_share, loads_s, bytes_s, wait_s, tokens_s, passes_s; /* hit_share < 0: not known */
	uint32_t client_count, drive_count, layer_count, expert_count;
	int truncated, has_vram_map;      /* has_vram_map: some layer says what is in VRAM */
	struct picture_vram vram;
	int heat_most;                    /* of all experts */
	struct picture_client client[PICTURE_CLIENTS_MAX];
	struct picture_drive drive[PICTURE_DRIVES_MAX];
	struct picture_layer layer[PICTURE_LAYERS_MAX];
	char state[PICTURE_EXPERTS_MAX];
	unsigned char in_vram[PICTURE_EXPERTS_MAX];
	unsigned char heat[PICTURE_EXPERTS_MAX]; /* 0..PICTURE_HEAT_MAX */
};

/*
 * before: of the sample before, NULL: none; one of another manager counts as none. 0, or -EBADMSG with what is missing or
 * wrong; then *ret_picture holds no picture.
 */
int picture_fill(const json_t *sample, const struct picture *before, struct picture *ret_picture, char message[TOP_MESSAGE_BYTES]);

/* 0..9 among all experts: 0 was never used. */
int picture_heat_level(const struct picture *picture, uint32_t expert);

#endif
