/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint directories; see checkpoint.h. A file is written under a temporary name, synced, then renamed. */
#include "tools/gen/checkpoint.h"

#include "base/file.h"
#include "base/fingerprint.h"
#include "base/message.h"
#include "tools/gen/family.h"
#include "tools/gen/layout.h"
#include "tools/gen/payload.h"
#include "tools/gen/stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct job {
	const struct gen_model *model;
	struct gen_layout layout;
	struct gen_payload *payload;
	struct gen_report report;
	gen_progress *progress;
	const char *directory;
	char *message;
	int directory_fd;
	int made_directory, made_stamp; /* by this run */
};

static const char *advice(int error)
{
	switch (error) {
	case -ENOSPC:
	case -EDQUOT:
		return ": free space there, or make a smaller model";
	case -EACCES:
	case -EPERM:
	case -EROFS:
		return ": name a directory in which you may write";
	case -ENOTDIR:
		return ": name another directory";
	default:
		return "";
	}
}

static int fail(const struct job *job, int error, const char *verb, const char *name)
{
	return cnre_message(job->message, GEN_MESSAGE_BYTES, error, "%s %.200s/%s: %s%s", verb, job->directory, name,
			    strerror(-error), advice(error));
}

static int fail_directory(const struct job *job, int error, const char *verb)
{
	return cnre_message(job->message, GEN_MESSAGE_BYTES, error, "%s %.200s: %s%s", verb, job->directory,
			    strerror(-error),
			    error != -ENOENT     ? advice(error)
			    : job->model != NULL ? ": make its parent first"
						 : ": name the directory of a checkpoint");
}

/* ---- files ---- */

static int write_all(int fd, const void *bytes, size_t count)
{
	const char *from = bytes;
	ssize_t n;

	while (count > 0) {
		n = write(fd, from, count);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		from += n;
		count -= (size_t)n;
	}
	return 0;
}

/* A file under its temporary name. Asking for all its room at once finds a full drive before an hour of writing. */
static int start_file(const struct job *job, const char *temporary, uint64_t bytes)
{
	int fd = openat(job->directory_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	int result;

	if (fd < 0)
		return -errno;
	if (fallocate(fd, 0, 0, (off_t)bytes) == 0 || (errno != ENOSPC && errno != EFBIG && errno != EDQUOT))
		return fd; /* not every file system has fallocate */
	result = -errno;
	(void)close(fd);
	(void)unlinkat(job->directory_fd, temporary, 0);
	return result;
}

static int end_file(const struct job *job, int fd, const char *temporary, const char *name, int result)
{
	if (result == 0 && fsync(fd) < 0)
		result = -errno;
	if (close(fd) < 0 && result == 0)
		result = -errno;
	if (result == 0 && renameat(job->directory_fd, temporary, job->directory_fd, name) < 0)
		result = -errno;
	if (result < 0)
		(void)unlinkat(job->directory_fd, temporary, 0);
	return result;
}

static void name_temporary(const char *name, char text[GEN_NAME_BYTES])
{
	(void)snprintf(text, GEN_NAME_BYTES, "%.80s.tmp", name);
}

static int write_file(const struct job *job, const char *name, const char *text, size_t bytes)
{
	char temporary[GEN_NAME_BYTES];
	int fd, result;

	name_temporary(name, temporary);
	fd = start_file(job, temporary, bytes);
	if (fd < 0)
		return fail(job, fd, "write", name);
	result = end_file(job, fd, temporary, name, write_all(fd, text, bytes));
	return result < 0 ? fail(job, result, "write", name) : 0;
}

/* ---- shards ---- */

static int write_piece(void *context, const struct gen_tensor *tensor, uint64_t offset, const void *bytes, size_t count)
{
	(void)tensor;
	(void)offset;
	return write_all(*(const int *)context, bytes, count);
}

static uint64_t shard_bytes(const struct job *job, uint32_t shard, size_t header_bytes)
{
	return header_bytes + job->layout.shard[shard].data_bytes;
}

static int measure_shard(const struct job *job, uint32_t shard, uint64_t *ret_bytes)
{
	char *header = NULL;
	size_t bytes = 0;
	int result = gen_layout_header(&job->layout, shard, &header, &bytes);

	free(header);
	if (result == 0)
		*ret_bytes = shard_bytes(job, shard, bytes);
	return result;
}

static int shard_is_there(const struct job *job, const char *name, uint64_t bytes)
{
	struct stat status;

	return fstatat(job->directory_fd, name, &status, 0) == 0 && S_ISREG(status.st_mode) &&
	       (uint64_t)status.st_size == bytes;
}

static int write_shard(struct job *job, uint32_t shard)
{
	char name[GEN_NAME_BYTES], temporary[GEN_NAME_BYTES];
	uint64_t bytes = 0;
	int fd, result;

	(void)gen_layout_shard_name(&job->layout, shard, name);
	result = measure_shard(job, shard, &bytes);
	if (result < 0)
		return fail(job, result, "write", name);
	job->report.bytes += bytes;
	if (shard_is_there(job, name, bytes)) {
		job->report.shards_kept++;
		return 0;
	}
	name_temporary(name, temporary);
	fd = start_file(job, temporary, bytes);
	if (fd < 0)
		return fail(job, fd, "write", name);
	result = gen_layout_walk(&job->layout, shard, job->payload, write_piece, &fd);
	result = end_file(job, fd, temporary, name, result);
	return result < 0 ? fail(job, result, "write", name) : 0;
}

struct comparison {
	struct job *job;
	const char *shard;
	int fd;
	uint64_t file_off;
	unsigned char *read;
};

static int compare_piece(void *context, const struct gen_tensor *tensor, uint64_t offset, const void *bytes,
			 size_t count)
{
	struct comparison *comparison = context;
	const unsigned char *expected = bytes;
	char name[GEN_NAME_BYTES];
	size_t done, n, i;
	int64_t got;

	for (done = 0; done < count; done += n) {
		n = count - done < GEN_CHUNK_BYTES ? count - done : GEN_CHUNK_BYTES;
		got = cnre_file_read(comparison->fd, comparison->read, n, comparison->file_off + done);
		if (got < 0)
			return fail(comparison->job, (int)got, "read", comparison->shard);
		for (i = 0; i < (size_t)got && comparison->read[i] == expected[done + i]; i++)
			;
		if (i < n)
			return cnre_message(comparison->job->message, GEN_MESSAGE_BYTES, -EBADMSG,
					    "verify %.150s/%s: %s differs from byte %llu on (file offset %llu)",
					    comparison->job->directory, comparison->shard,
					    tensor == NULL ? "the header"
							   : gen_tensor_name(comparison->job->model, tensor, name),
					    (unsigned long long)(offset + done + i),
					    (unsigned long long)(comparison->file_off + done + i));
	}
	comparison->file_off += count;
	return 0;
}

static int verify_opened(struct job *job, uint32_t shard, const char *name, int fd, uint64_t file_bytes)
{
	struct comparison comparison = {.job = job, .shard = name, .fd = fd};
	uint64_t bytes = 0;
	int result = measure_shard(job, shard, &bytes);

	if (result < 0)
		return fail(job, result, "verify", name);
	if (bytes != file_bytes)
		return cnre_message(job->message, GEN_MESSAGE_BYTES, -EBADMSG,
				    "verify %.200s/%s: %llu bytes instead of %llu", job->directory, name,
				    (unsigned long long)file_bytes, (unsigned long long)bytes);
	comparison.read = malloc(GEN_CHUNK_BYTES);
	if (comparison.read == NULL)
		return fail(job, -ENOMEM, "verify", name);
	result = gen_layout_walk(&job->layout, shard, job->payload, compare_piece, &comparison);
	free(comparison.read);
	job->report.bytes += bytes;
	return result;
}

static int verify_shard(struct job *job, uint32_t shard)
{
	char name[GEN_NAME_BYTES];
	uint64_t bytes = 0;
	int fd, result;

	(void)gen_layout_shard_name(&job->layout, shard, name);
	fd = cnre_file_open(job->directory_fd, name, &bytes);
	if (fd < 0)
		return fail(job, fd, "open", name);
	result = verify_opened(job, shard, name, fd, bytes);
	(void)close(fd);
	return result;
}

static int each_shard(struct job *job, int (*step)(struct job *job, uint32_t shard))
{
	char name[GEN_NAME_BYTES];
	uint32_t shard;
	int result;

	for (shard = 0; shard < job->layout.shard_count; shard++) {
		result = step(job, shard);
		if (result < 0)
			return result;
		job->report.shards++;
		if (job->progress != NULL)
			job->progress(gen_layout_shard_name(&job->layout, shard, name), shard + 1,
				      job->layout.shard_count, job->report.bytes);
	}
	return 0;
}

/* ---- the small files ---- */

static int write_keys(const struct job *job, const char *name, const struct gen_key *keys)
{
	char *text = NULL;
	size_t bytes = 0;
	int result = gen_config_print(job->model, keys, &text, &bytes);

	if (result < 0)
		return fail(job, result, "write", name);
	result = write_file(job, name, text, bytes);
	free(text);
	return result;
}

static int write_config(const struct job *job)
{
	const struct gen_extra *extra = job->model->family->extra;
	int result = extra == NULL ? 0 : write_keys(job, extra->name, extra->keys);

	return result < 0 ? result : write_keys(job, "config.json", job->model->family->keys);
}

static int write_index(const struct job *job)
{
	const struct gen_layout *layout = &job->layout;
	char name[GEN_NAME_BYTES], *text = NULL;
	uint64_t total = 0;
	uint32_t shard, i;
	size_t bytes = 0;
	int result;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return fail(job, -ENOMEM, "write", "model.safetensors.index.json");
	for (shard = 0; shard < layout->shard_count; shard++)
		total += layout->shard[shard].data_bytes;
	(void)fprintf(out, "{\"metadata\": {\"total_size\": %llu}, \"weight_map\": {", (unsigned long long)total);
	for (shard = 0; shard < layout->shard_count; shard++)
		for (i = layout->shard[shard].first_tensor;
		     i < layout->shard[shard].first_tensor + layout->shard[shard].tensor_count; i++) {
			(void)fprintf(out, "%s\"%s\": ", i == 0 ? "" : ", ",
				      gen_tensor_name(job->model, &layout->tensor[i], name));
			(void)fprintf(out, "\"%s\"", gen_layout_shard_name(layout, shard, name));
		}
	(void)fputs("}}\n", out);
	if (fclose(out) != 0)
		result = fail(job, -ENOMEM, "write", "model.safetensors.index.json");
	else
		result = write_file(job, "model.safetensors.index.json", text, bytes);
	free(text);
	return result;
}

/* ---- the directory ---- */

static int model_equals(const struct gen_model *a, const struct gen_model *b)
{
	char *first = gen_stamp_make(a), *second = gen_stamp_make(b);
	int equal = first != NULL && second != NULL && strcmp(first, second) == 0;

	free(first);
	free(second);
	return equal;
}

/* With force: only shards that we could have written go; anything else that is in the way stays and is refused. */
static int remove_shards(const struct job *job, char **names, int count)
{
	int i;

	for (i = 0; i < count; i++) {
		if (!gen_layout_is_shard_name(names[i]))
			return fail(job, -EEXIST, "replace", names[i]);
		if (unlinkat(job->directory_fd, names[i], 0) < 0)
			return fail(job, -errno, "replace", names[i]);
	}
	return 0;
}

/* The directory may hold this model, whole or in part, or nothing. */
static int make_way(const struct job *job, int force)
{
	struct gen_model *present = calloc(1, sizeof *present);
	char **names = NULL;
	int count, equal, result = 0;

	if (present == NULL)
		return fail(job, -ENOMEM, "read", GEN_STAMP_NAME);
	equal = gen_stamp_read(job->directory_fd, present) == 0 && model_equals(present, job->model);
	free(present);
	count = cnre_fingerprint_list_shards(job->directory, &names);
	if (count < 0)
		return fail_directory(job, count, "list");
	if (force)
		result = remove_shards(job, names, count);
	else if (!equal && count > 0)
		result = cnre_message(
			job->message, GEN_MESSAGE_BYTES, -EEXIST,
			"write %.200s: holds another checkpoint (%s): name another directory, or use --force",
			job->directory, names[0]);
	cnre_fingerprint_free_names(names, count);
	return result;
}

static int write_stamp(struct job *job)
{
	char *text = gen_stamp_make(job->model);
	int was_there = faccessat(job->directory_fd, GEN_STAMP_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	int result;

	if (text == NULL)
		return fail(job, -ENOMEM, "write", GEN_STAMP_NAME);
	result = write_file(job, GEN_STAMP_NAME, text, strlen(text));
	job->made_stamp = result == 0 && !was_there;
	free(text);
	return result;
}

/* After a failure. With a shard that is whole the stamp stays: the next run goes on from there. */
static void clear_away(const struct job *job)
{
	char **names = NULL;
	int count = cnre_fingerprint_list_shards(job->directory, &names);

	if (count >= 0)
		cnre_fingerprint_free_names(names, count);
	if (job->made_stamp && count == 0)
		(void)unlinkat(job->directory_fd, GEN_STAMP_NAME, 0);
	if (job->made_directory)
		(void)rmdir(job->directory); /* if nothing is left in it */
}

static int open_job(struct job *job)
{
	int result;

	job->directory_fd = open(job->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (job->directory_fd < 0)
		return fail_directory(job, -errno, "open");
	job->payload = malloc(sizeof *job->payload);
	if (job->payload == NULL)
		return fail_directory(job, -ENOMEM, "open");
	if (job->model == NULL)
		return 0; /* verify: not known yet */
	result = gen_layout_open(&job->layout, job->model);
	if (result == -E2BIG)
		return cnre_message(job->message, GEN_MESSAGE_BYTES, result,
				    "write %.200s: more than %u shards: raise "
				    "--shard-bytes",
				    job->directory, GEN_SHARDS_MAX);
	if (result < 0)
		return fail_directory(job, result, "open");
	gen_payload_open(job->payload, job->model);
	return 0;
}

static void close_job(struct job *job)
{
	gen_layout_done(&job->layout);
	free(job->payload);
	if (job->directory_fd >= 0)
		(void)close(job->directory_fd);
}

int gen_checkpoint_write(const struct gen_model *model, const char *directory, int force, gen_progress *progress,
			 struct gen_report *ret_report, char message[GEN_MESSAGE_BYTES])
{
	struct job job = {
		.model = model, .progress = progress, .directory = directory, .message = message, .directory_fd = -1};
	int result;

	job.made_directory = mkdir(directory, 0755) == 0;
	if (!job.made_directory && errno != EEXIST)
		return fail_directory(&job, -errno, "create");
	result = open_job(&job);
	if (result == 0)
		result = make_way(&job, force);
	if (result == 0)
		result = write_stamp(&job);
	if (result == 0)
		result = each_shard(&job, write_shard);
	if (result == 0)
		result = write_index(&job);
	if (result == 0)
		result = write_config(&job); /* last: without it nothing takes the directory for a checkpoint */
	if (result == 0)
		*ret_report = job.report;
	else
		clear_away(&job);
	close_job(&job);
	return result;
}

static int verify_opened_job(struct job *job, struct gen_model *model)
{
	int result = gen_stamp_read(job->directory_fd, model);

	if (result == -ENOENT || result == -EBADMSG)
		return cnre_message(job->message, GEN_MESSAGE_BYTES, result,
				    "verify %.200s/" GEN_STAMP_NAME
				    ": %s: only what this cnre-gen made can be verified",
				    job->directory, result == -ENOENT ? "not there" : "not its stamp");
	if (result < 0)
		return fail(job, result, "read", GEN_STAMP_NAME);
	job->model = model;
	result = gen_layout_open(&job->layout, model);
	if (result < 0)
		return fail_directory(job, result, "verify");
	gen_payload_open(job->payload, model);
	return each_shard(job, verify_shard);
}

int gen_checkpoint_verify(const char *directory, gen_progress *progress, struct gen_report *ret_report,
			  char message[GEN_MESSAGE_BYTES])
{
	struct job job = {.progress = progress, .directory = directory, .message = message, .directory_fd = -1};
	struct gen_model *model = calloc(1, sizeof *model);
	int result;

	result = model == NULL ? fail_directory(&job, -ENOMEM, "verify") : open_job(&job);
	if (result == 0)
		result = verify_opened_job(&job, model);
	if (result == 0)
		*ret_report = job.report;
	close_job(&job);
	free(model);
	return result;
}
