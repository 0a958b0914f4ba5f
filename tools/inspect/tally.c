/* SPDX-License-Identifier: Apache-2.0 */
/* See tally.h. */
#include "tools/inspect/tally.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

const char *const tally_class_name[TALLY_CLASSES] = {
	[TALLY_LOAD] = "loads",     [TALLY_HEADER] = "headers", [TALLY_OWN] = "own",       [TALLY_KV] = "kv",
	[TALLY_DENSE] = "dense",    [TALLY_AHEAD] = "ahead",    [TALLY_SELF] = "self",     [TALLY_FILE] = "file",
	[TALLY_METADATA] = "metadata", [TALLY_UNKNOWN] = "unknown",
};

int tally_is_attributed(enum tally_class class)
{
	return class < TALLY_SELF;
}

int tally_open(struct tally *tally)
{
	*tally = (struct tally){.process_count = 0};
	tally->process = calloc(TALLY_PROCESSES_MAX, sizeof tally->process[0]);
	tally->client = calloc(TALLY_CLIENTS_MAX, sizeof tally->client[0]);
	tally->unexplained = calloc(TALLY_UNEXPLAINED_MAX, sizeof tally->unexplained[0]);
	if (tally->process != NULL && tally->client != NULL && tally->unexplained != NULL)
		return 0;
	tally_close(tally);
	return -ENOMEM;
}

void tally_close(struct tally *tally)
{
	free(tally->process);
	free(tally->client);
	free(tally->unexplained);
	*tally = (struct tally){.process_count = 0};
}

struct tally_process *tally_process(struct tally *tally, uint32_t process, const char *name)
{
	struct tally_process *found;

	/* Latest first: who reads now has read a moment ago. */
	for (uint32_t i = tally->process_count; i > 0; i--)
		if (tally->process[i - 1].process == process)
			return &tally->process[i - 1];
	if (tally->process_count == TALLY_PROCESSES_MAX)
		return NULL;
	found = &tally->process[tally->process_count++];
	found->process = process;
	found->file = found->chain.file = TALLY_NO_FILE;
	(void)snprintf(found->name, sizeof found->name, "%.15s", name);
	/* A process names itself as it likes: nothing of it moves a cursor, or is no text for JSON. */
	for (char *at = found->name; *at != '\0'; at++)
		if (*at < 0x20 || *at > 0x7e)
			*at = '?';
	return found;
}

struct tally_client *tally_client(struct tally *tally, uint32_t session)
{
	for (uint32_t i = 0; i < tally->client_count; i++)
		if (tally->client[i].session == session)
			return &tally->client[i];
	if (tally->client_count == TALLY_CLIENTS_MAX)
		return NULL;
	tally->client[tally->client_count].session = session;
	return &tally->client[tally->client_count++];
}

static struct tally_drive *drive_of(struct tally *tally, uint64_t device)
{
	for (uint32_t i = 0; i < tally->drive_count; i++)
		if (tally->drive[i].device == device)
			return &tally->drive[i];
	if (tally->drive_count == TALLY_DRIVES_MAX)
		return NULL;
	tally->drive[tally->drive_count].device = device;
	return &tally->drive[tally->drive_count++];
}

static void add_unexplained(struct tally *tally, const struct tally_unexplained *wanted)
{
	for (uint32_t i = 0; i < tally->unexplained_count; i++) {
		struct tally_unexplained *line = &tally->unexplained[i];

		if (line->process == wanted->process && line->class == wanted->class && line->device == wanted->device &&
		    line->inode == wanted->inode) {
			line->bytes += wanted->bytes;
			return;
		}
	}
	if (tally->unexplained_count == TALLY_UNEXPLAINED_MAX)
		tally->beyond += wanted->bytes;
	else
		tally->unexplained[tally->unexplained_count++] = *wanted;
}

void tally_add(struct tally *tally, struct tally_process *process, enum tally_class class, uint64_t device, uint64_t inode, uint64_t bytes)
{
	struct tally_drive *drive = drive_of(tally, device);

	process->bytes[class] += bytes;
	if (drive != NULL)
		drive->bytes[class] += bytes;
	else
		tally->beyond += bytes;
	if (class > TALLY_SELF)
		add_unexplained(tally, &(struct tally_unexplained){.process = process->process,
								   .class = class,
								   .device = device,
								   .inode = inode,
								   .bytes = bytes});
}

enum tally_class tally_judge(struct tally_chain *chain, const struct tally_piece *piece, uint64_t ahead_bytes)
{
	uint64_t slack = piece->is_cached ? ahead_bytes : TALLY_PAGE_BYTES - 1;
	int goes_on;

	if (piece->kind != RANGE_EXPERT) {
		chain->file = piece->file;
		chain->end = piece->file_off + piece->bytes;
		chain->left = slack;
		return piece->kind == RANGE_HEADER ? TALLY_HEADER : TALLY_DENSE;
	}
	if (piece->is_before_dense && piece->bytes <= slack)
		return TALLY_AHEAD;
	goes_on = chain->file == piece->file && chain->end == piece->file_off && chain->left >= piece->bytes;
	if (!goes_on) {
		chain->file = TALLY_NO_FILE;
		return TALLY_SELF;
	}
	chain->end += piece->bytes;
	chain->left -= piece->bytes;
	return TALLY_AHEAD;
}
