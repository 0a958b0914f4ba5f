/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drives behind the loader, where shards have replicas: which of them serve (rank and weight of each replica, for
 * replica.h), what they did (bytes, errors, failovers), how fast they are, who failed and is tried again. load_parts.c asks
 * and tells; report_drives.c shows. Where no shard has a second file all of it only counts. Core thread only; whatever
 * waits for a drive goes through the loader.
 */
#ifndef CNRE_MANAGER_DRIVE_H
#define CNRE_MANAGER_DRIVE_H

#include "manager/manager.h"
#include "manager/replica.h"

#include <stddef.h>
#include <stdint.h>

#define DRIVE_TICK_NS 1000000000ll            /* between two looks at speeds and at new replicas */
#define DRIVE_USES_NS 60000000000ll           /* between two looks at which shards are used */
#define DRIVE_SPARE_PART 16.0                 /* slower than this part of the fastest: used only when others fail */
#define DRIVE_CHANGE_MIN 0.05                 /* a weight that moved by less stays as it is */
#define DRIVE_SAMPLE_BYTES (8u << 20)         /* a speed is taken from so many bytes, */
#define DRIVE_SAMPLE_NS 500000000ll           /* and so much busy time: the first after a pause may come from its cache */
#define DRIVE_SAMPLE_PART 0.25                /* of a speed that the newest sample makes up, where the drive was busy nearly all */
#define DRIVE_SAMPLE_BUSY 0.8                 /* this part of the time; else it may have answered from what it had gathered while */
#define DRIVE_SAMPLE_IDLE_PART 0.0625         /* it was idle, and the sample counts less */
#define DRIVE_PROBE_READS 8u                  /* of a drive whose speed is unknown, */
#define DRIVE_PROBE_BYTES (4u << 20)          /* so many bytes each: a demand may have to wait behind one, */
#define DRIVE_PROBE_NS 500000000ll            /* and no further one begins after this */
#define DRIVE_PROBE_AGAIN_NS 60000000000ll    /* one that gets nothing to do is measured again */
#define DRIVE_SPEED_UNKNOWN 20e6              /* bytes a second, for what may be expected of it */
#define DRIVE_STALL_MIN_NS 2000000000ll       /* while another replica is there: no read is given up before this, */
#define DRIVE_STALL_FACTOR 8.0                /* nor before so many times what it should take */
#define DRIVE_BANS_MAX (LOADER_RUNS_MAX * LOADER_REPLICAS_MAX)
#define DRIVE_ANY UINT32_MAX
#define DRIVE_REACH_STOP_NS 1000000000ll      /* what a stop waits for a thread that tries to open a file */

/* What an object's load has learnt: whose bytes it shall not get again. Zeros and only = DRIVE_ANY: nothing yet. */
struct drive_bans {
	uint32_t drives;                      /* bit by drive: used only where nothing else is left */
	uint32_t file_count, file[DRIVE_BANS_MAX];
	uint32_t only;                        /* which replica of every shard, or DRIVE_ANY */
};

enum drive_error { DRIVE_ERROR_IO, DRIVE_ERROR_SHORT, DRIVE_ERROR_GONE, DRIVE_ERROR_DIGEST, DRIVE_ERROR_TIMEOUT, DRIVE_ERRORS };

/*
 * After the loader has the shards' files. weights: "4:1" or "4,1", of the primary and the mirrors in the order they were named; NULL:
 * measured. 0, -ENOMEM, or -EINVAL with one line.
 */
int drive_open_all(struct manager *manager, const char *weights, char *message, size_t message_bytes);
/* After loader_close, which ends probes. */
void drive_close_all(struct manager *manager);
/* The table of files has grown. Otherwise that is seen within DRIVE_TICK_NS. */
void drive_files_changed(struct manager *manager);
/* Weights as text: 0 and how many, or -EINVAL. */
int drive_parse_weights(const char *text, double ret_weight[LOADER_REPLICAS_MAX], uint32_t *ret_count);
/* replicas: the primary and every mirror; 0: any number. 0 (also for NULL), or -EINVAL with a line that says what is wrong. */
int drive_check_weights(const char *text, uint32_t replicas, char *message, size_t message_bytes);

void drive_tick(struct manager *manager, int64_t now_ns);
int64_t drive_deadline_ns(const struct manager *manager);

int drive_has_replicas(const struct manager *manager); /* of any shard */
/* As replica_split, for an object of a model. bans NULL: none. */
int drive_split(const struct manager *manager, const struct served_model *model, uint32_t object,
		const struct model_plan *plan, const struct drive_bans *bans, struct replica_split *ret_split);
/* How long a read of so many bytes, those before it included, may take before another replica is asked. */
int64_t drive_patience_ns(const struct manager *manager, uint32_t drive, uint64_t bytes);

/* A part came back: its bytes count, and what it says of its drive and its files. */
void drive_read_done(struct manager *manager, uint32_t drive, const struct loader_read *read, int status);
/* A read of this place did not come back in its time: there its drive is tried when it answers again. */
void drive_stalled(struct manager *manager, uint32_t drive, uint32_t file, uint64_t off);
/* An object was not what it ought to be, and this file gave its bytes alone. */
void drive_mismatched(struct manager *manager, uint32_t file);
/* And another replica had the right ones: after HEALTH_ERRORS_MAX times it is degraded. */
void drive_proven_wrong(struct manager *manager, uint32_t file);
/* A load left this drive for another replica. */
void drive_left(struct manager *manager, uint32_t drive);
/* And was READY so long after its first read. */
void drive_failed_over(struct manager *manager, int64_t ns);

#endif
