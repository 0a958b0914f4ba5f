/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files in and out; see file.h. */
#include "tools/sim/file.h"

#include "base/file.h"
#include "base/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_MAX 100u /* tried for a temporary file */

static int refuse(const char *path, int error, const char *remedy, char *message, size_t message_bytes)
{
	return cnre_message(message, message_bytes, error, "%s: %s%s", path,
			    error == -EINVAL ? "not a regular file: give the name of one" : strerror(-error), remedy);
}

int sim_file_read(const char *path, uint64_t max_bytes, char **ret_text, size_t *ret_bytes, char *message,
		  size_t message_bytes)
{
	uint64_t bytes = 0;
	char *text;
	int64_t got;
	int fd = cnre_file_open(AT_FDCWD, path, &bytes);

	if (fd < 0)
		return refuse(path, fd, "", message, message_bytes);
	if (bytes > max_bytes) {
		(void)close(fd);
		return cnre_message(message, message_bytes, -EINVAL,
				    "%s: more than %llu bytes: is this the right file?", path,
				    (unsigned long long)max_bytes);
	}
	text = malloc(bytes + 1);
	got = text == NULL ? -ENOMEM : cnre_file_read(fd, text, bytes, 0);
	(void)close(fd);
	if (got < 0) {
		free(text);
		return refuse(path, (int)got, "", message, message_bytes);
	}
	text[got] = '\0';
	*ret_text = text;
	*ret_bytes = (size_t)got;
	return 0;
}

static int already_there(const char *path, char *message, size_t message_bytes)
{
	return cnre_message(message, message_bytes, -EEXIST, "%s: exists already: use --force to replace it", path);
}

/* The kernel applies the umask, which no thread could ask for without changing it. O_EXCL: never another's file. */
static int create(struct sim_output *output)
{
	unsigned attempt;
	int fd = -1;

	for (attempt = 0; attempt < NAMES_MAX && fd < 0; attempt++) {
		(void)snprintf(output->temporary, sizeof output->temporary, "%s.%ld-%u", output->path, (long)getpid(),
			       attempt);
		fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd < 0 && errno != EEXIST)
			return -errno;
	}
	return fd < 0 ? -EEXIST : fd;
}

int sim_output_open(struct sim_output *ret_output, const char *path, int force, char *message, size_t message_bytes)
{
	struct stat status;
	int fd;

	if (strlen(path) >= sizeof ret_output->path)
		return refuse(path, -ENAMETOOLONG, "", message, message_bytes);
	if (!force && lstat(path, &status) == 0)
		return already_there(path, message, message_bytes);
	(void)snprintf(ret_output->path, sizeof ret_output->path, "%s", path);
	fd = create(ret_output);
	if (fd < 0)
		return refuse(path, fd, ": give a name in a directory that can be written to", message, message_bytes);
	ret_output->file = fdopen(fd, "w");
	if (ret_output->file != NULL)
		return 0;
	(void)unlink(ret_output->temporary);
	(void)close(fd);
	return refuse(path, -ENOMEM, "", message, message_bytes);
}

void sim_output_abandon(struct sim_output *output)
{
	if (output->file != NULL)
		(void)fclose(output->file);
	output->file = NULL;
	(void)unlink(output->temporary);
}

static int flush(FILE *file)
{
	errno = EIO;
	if (fflush(file) != 0 || ferror(file) || fsync(fileno(file)) < 0)
		return -errno;
	return 0;
}

/* Where a filesystem knows no RENAME_NOREPLACE, link() refuses a name that is there, too. */
static int give_new_name(const struct sim_output *output)
{
	if (renameat2(AT_FDCWD, output->temporary, AT_FDCWD, output->path, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (link(output->temporary, output->path) < 0)
		return -errno;
	(void)unlink(output->temporary);
	return 0;
}

static int give_name(const struct sim_output *output, int force)
{
	if (!force)
		return give_new_name(output);
	return rename(output->temporary, output->path) < 0 ? -errno : 0;
}

int sim_output_commit(struct sim_output *output, int force, char *message, size_t message_bytes)
{
	int result = flush(output->file);

	if (fclose(output->file) != 0 && result == 0)
		result = -errno;
	output->file = NULL;
	if (result == 0)
		result = give_name(output, force);
	if (result == 0)
		return 0;
	(void)unlink(output->temporary);
	if (result == -EEXIST)
		return already_there(output->path, message, message_bytes);
	return refuse(output->path, result, result == -ENOSPC || result == -EIO ? ": is there room for it?" : "",
		      message, message_bytes);
}
