/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of drive.h share. drive.c: ranks, counts and health; drive_speed.c: weights; drive_probe.c: reads of our
 * own; drive_reach.c: whether they can be begun; report_drives.c and report_settings.c: JSON; metrics_collect.c: numbers
 * for scrapers. Private to them.
 */
#ifndef CNRE_MANAGER_DRIVE_INNER_H
#define CNRE_MANAGER_DRIVE_INNER_H

#include "manager/drive.h"
#include "manager/health.h"
#include "manager/histogram.h"
#include "manager/loop.h"
#include "manager/worker.h"

/* EQUAL: a speed could not be measured. MEASURING: one is not known yet, and its drive is a spare until it is. */
enum drive_weights { DRIVE_WEIGHTS_EQUAL, DRIVE_WEIGHTS_MEASURING, DRIVE_WEIGHTS_MEASURED, DRIVE_WEIGHTS_DECLARED };

/* A read of our own: one at a time for each drive. */
struct drive_probe {
	struct loader_read read;              /* first: `done` gets its address */
	struct manager *manager;
	uint32_t drive;
	uint32_t reads_left;                  /* of those that measure its speed; 0: that is over, or was not asked for */
	uint32_t of_file;                     /* whose health is looked at, where is_of_health: a file, or DRIVE_ANY: the drive */
	int is_out, is_of_health;
	int64_t begun_ns, measured_ns;        /* when measuring began, and when it ended */
	char *memory;                         /* DRIVE_PROBE_BYTES, while is_out or reads_left > 0 */
};

/* A try of a thread, one at a time for each drive; see drive_reach.c. */
struct drive_reach {
	struct worker_job job;                /* first: run and done get its address */
	struct loop_source source;
	struct manager *manager;
	struct worker *worker;                /* NULL: there was nothing to try yet */
	uint32_t drive;
	char *path;                           /* its own: it may outlive the loader */
	uint64_t off;
	int is_out, result;
};

struct drive_file {
	struct health health;
	uint64_t bad_off;                     /* where its last error was */
	uint32_t proven_wrong;                /* times that another replica had the right bytes; no read takes it back */
};

struct drive {
	double speed;                         /* bytes a second; 0: not known */
	double weight;                        /* in force; 0: a spare */
	uint64_t sampled_bytes;               /* of the loader's count, at the last sample */
	int64_t sampled_ns;                   /* likewise, of its busy time */
	int64_t sample_begun_ns;              /* when that was */
	struct health health;
	uint32_t bad_file;                    /* whose read failed last */
	int is_replicated;                    /* holds a shard that lies on another drive too */
	uint64_t bytes, reads, left, errors[DRIVE_ERRORS];
	int64_t read_ns;                      /* from submission to completion, over reads */
	struct histogram read_times;          /* each of them */
	struct drive_probe probe;
	struct drive_reach reach;
};

struct drives {
	struct drive drive[LOADER_DRIVES_MAX];
	struct drive_file *file;              /* [LOADER_FILES_MAX] by number */
	uint32_t file_end;                    /* numbers that shards have are below */
	uint32_t files;                       /* of all shards of all models, when it was last looked at */
	uint32_t degraded_files;
	int has_replicas;
	double declared[LOADER_REPLICAS_MAX];
	uint32_t declared_count;              /* 0: measured */
	enum drive_weights weights;           /* those in force */
	struct replica_group group[REPLICA_GROUPS_MAX];
	uint32_t group_count;
	int64_t look_ns, uses_ns;             /* the next looks */
	uint64_t bytes_before;                /* read by dead incarnations */
	uint64_t failovers;
	int64_t failover_last_ns, failover_most_ns;
};

/* drive.c */
uint32_t drive_of_file(const struct manager *manager, uint32_t file);
void drive_count_degraded(struct manager *manager);

/* drive_speed.c: who is measured, and the weights that follow. */
void drive_look_at_groups(struct manager *manager);
void drive_measure_unknown(struct manager *manager);
void drive_sample(struct manager *manager, uint32_t drive, int is_probe);
void drive_weigh(struct manager *manager);

/* drive_probe.c */
void drive_probe_tick(struct manager *manager, int64_t now_ns);
void drive_probe_speed(struct manager *manager, uint32_t drive);
int64_t drive_probe_deadline_ns(const struct manager *manager);
/* A file of it could be opened and read, or -errno. */
void drive_probe_reached(struct manager *manager, uint32_t drive, int result);
void drive_probe_close(struct drive *drive);

/* drive_reach.c: 0, or -errno where no thread can be had. */
int drive_reach_begin(struct manager *manager, uint32_t drive, const char *path, uint64_t off);
/* 0, or -ETIMEDOUT: its thread hangs, and has what it was given until the end of the process. */
int drive_reach_close(struct drive_reach *reach);

#endif
