/* SPDX-License-Identifier: Apache-2.0 */
/* Reading in the writer's thread; see use_file.h. */
#include "manager/use_file.h"

#include "base/check.h"
#include "base/file.h"
#include "base/message.h"
#include "model/engine_name.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(struct use_file *file, int error, const char *reason)
{
	return cnre_message(file->message, sizeof file->message, error, "%s", reason);
}

/* What was passed may be anything that can be open. */
static int size_of(struct use_file *file, uint64_t *ret_bytes)
{
	struct stat status;

	if (fstat(file->fd, &status) < 0)
		return refuse(file, -errno, strerror(errno));
	if (!S_ISREG(status.st_mode))
		return refuse(file, -EINVAL, "not a regular file");
	*ret_bytes = (uint64_t)status.st_size;
	return 0;
}

static int open_path(struct use_file *file)
{
	uint64_t bytes;

	if (file->fd >= 0)
		return 0;
	file->fd = cnre_file_open(AT_FDCWD, file->path, &bytes);
	if (file->fd >= 0)
		return 0;
	return refuse(file, file->fd, file->fd == -EINVAL ? "not a regular file" : strerror(-file->fd));
}

static int read_list(struct use_file *file, const void *data, size_t bytes)
{
	const struct model_catalog *catalog = file->model->catalog;
	int r = use_list_open(&file->list, catalog->layer_count, catalog->main_layer_count,
			      catalog->expert_count, 0);

	if (r < 0)
		return refuse(file, r, "out of memory");
	r = use_list_read(&file->list, data, bytes, file->message, sizeof file->message);
	if (r < 0)
		use_list_close(&file->list);
	return r;
}

static int read_whole(struct use_file *file)
{
	uint64_t bytes = 0;
	int64_t got;
	char *data;
	int r = open_path(file);

	if (r == 0)
		r = size_of(file, &bytes);
	if (r < 0)
		return r;
	if (bytes > USE_LIST_BYTES_MAX)
		return cnre_message(file->message, sizeof file->message, -EFBIG, "%llu bytes, %u at most: take a part of it",
				    (unsigned long long)bytes, USE_LIST_BYTES_MAX);
	data = malloc(bytes + 1);
	if (data == NULL)
		return refuse(file, -ENOMEM, "out of memory");
	got = cnre_file_read(file->fd, data, bytes, 0);
	r = got < 0 ? refuse(file, (int)got, strerror((int)-got)) : read_list(file, data, (size_t)got);
	free(data);
	return r;
}

static void run(struct worker_job *job)
{
	struct use_file *file = (struct use_file *)job;

	file->result = read_whole(file);
	if (file->result == 0 && file->prepare != NULL)
		file->prepare(file->owner);
	if (file->fd >= 0)
		(void)close(file->fd);
	file->fd = -1;
}

static void done(struct worker_job *job)
{
	struct use_file *file = (struct use_file *)job;

	file->is_reading = 0;
	file->done(file->owner);
}

static void submit(struct use_file *file, struct worker *writer)
{
	CNRE_CHECK(!file->is_reading);
	file->job = (struct worker_job){.run = run, .done = done};
	file->result = 0;
	file->message[0] = '\0';
	file->is_reading = 1;
	worker_submit(writer, &file->job);
}

void use_file_read_fd(struct use_file *file, struct worker *writer, int fd)
{
	file->fd = fd;
	submit(file, writer);
}

void use_file_read_path(struct use_file *file, struct worker *writer, const char *path)
{
	file->fd = -1;
	(void)snprintf(file->path, sizeof file->path, "%s", path); /* the parser of settings takes no longer one */
	submit(file, writer);
}

void use_file_name(struct use_file *file, const char *name)
{
	(void)snprintf(file->name, sizeof file->name, "%s", name);
}

const char *use_file_other_writer(const struct use_file *file, char *text, size_t bytes)
{
	uint32_t writer = file->list.usage.writer;
	const char *name = engine_name_find(writer);

	if (writer == 0 || writer == engine_name_id(file->model->catalog->family))
		return NULL;
	if (name != NULL)
		(void)snprintf(text, bytes, "%s", name);
	else
		(void)snprintf(text, bytes, "engine %u, which is not known", writer);
	return text;
}
