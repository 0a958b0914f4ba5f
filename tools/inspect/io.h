/* SPDX-License-Identifier: Apache-2.0 */
/* The verb io: every byte that the manager and its engines read from the block layer, and what it was for. */
#ifndef CNRE_TOOLS_INSPECT_IO_H
#define CNRE_TOOLS_INSPECT_IO_H

#include "tools/inspect/checkpoint.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/known_files.h"
#include "tools/inspect/load_table.h"
#include "tools/inspect/tally.h"

struct io {
	struct checkpoint checkpoint;
	struct known_files files;
	struct load_table loads;
	struct tally tally;
	uint32_t watched_clients;         /* of the subject's, told to the programs */
	uint32_t watched_managers;
	struct tally_expert *expert[CHECKPOINT_MODELS_MAX]; /* by object, of the served model */
	uint64_t ahead_bytes;
	int has_own_reads;                /* mirrors or a scrub: a reason to read experts for no load */
};

/* Of a process, at the time of a report. */
enum io_role { IO_MANAGER, IO_ENGINE, IO_KERNEL, IO_OTHER };

enum io_role io_role_of(const struct inspect *inspect, const struct tally_process *process);
int io_open(struct inspect *inspect, char message[INSPECT_MESSAGE_BYTES]);
void io_tick(struct inspect *inspect);
void io_close(struct inspect *inspect);
json_t *io_report(struct inspect *inspect);
void io_print(FILE *out, const json_t *report);

/* "model-00001.safetensors" of a file, "" of none; where the process keeps it open, the path of an inode. */
const char *io_file_name(const struct io *io, uint32_t file);

#endif
