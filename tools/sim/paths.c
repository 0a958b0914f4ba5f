/* SPDX-License-Identifier: Apache-2.0 */
/* Files and directories of traces; see paths.h. */
#include "tools/sim/paths.h"

#include "base/message.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATHS_MAX 4096u

static int append(struct sim_paths *paths, char *path)
{
	char **larger;

	if (path == NULL)
		return -ENOMEM;
	if (paths->count == PATHS_MAX) {
		free(path);
		return -E2BIG;
	}
	larger = realloc(paths->path, (paths->count + (size_t)1) * sizeof *larger);
	if (larger == NULL) {
		free(path);
		return -ENOMEM;
	}
	paths->path = larger;
	paths->path[paths->count++] = path;
	return 0;
}

static int ends_with(const char *name, const char *end)
{
	size_t length = strlen(name), end_length = strlen(end);

	return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

static int is_of_split(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0 && !ends_with(name, ".json");
}

static int may_be_trace(const char *name)
{
	return name[0] != '.' && !ends_with(name, ".json") && !ends_with(name, ".md") && !is_of_split(name, "eval_") &&
	       !is_of_split(name, "train_");
}

static char *join(const char *directory, const char *name)
{
	size_t bytes = strlen(directory) + strlen(name) + 2;
	char *path = malloc(bytes);

	if (path != NULL)
		(void)snprintf(path, bytes, "%s/%s", directory, name);
	return path;
}

static int is_file(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* prefix NULL: what may be a trace at all. */
static int add_entries(struct sim_paths *paths, const char *directory, struct dirent **entry, int entries,
		       const char *prefix)
{
	for (int i = 0; i < entries; i++) {
		const char *name = entry[i]->d_name;
		char *path;
		int r;

		if (prefix != NULL ? !is_of_split(name, prefix) : !may_be_trace(name))
			continue;
		path = join(directory, name);
		if (path != NULL && !is_file(path)) {
			free(path);
			continue;
		}
		r = append(paths, path);
		if (r < 0)
			return r;
	}
	return 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name); /* alphasort would ask the locale */
}

static int add_directory(struct sim_paths *paths, const char *directory, const char *prefix)
{
	struct dirent **entry;
	uint32_t before = paths->count;
	int entries = scandir(directory, &entry, NULL, by_bytes), r;

	if (entries < 0)
		return -errno;
	r = add_entries(paths, directory, entry, entries, prefix);
	if (r == 0 && paths->count == before)
		r = add_entries(paths, directory, entry, entries, NULL);
	for (int i = 0; i < entries; i++)
		free(entry[i]);
	free(entry);
	return r == 0 && paths->count == before ? -ENOENT : r;
}

int sim_paths_add(struct sim_paths *paths, const char *name, const char *prefix, char *message, size_t message_bytes)
{
	struct stat status;
	int r;

	if (stat(name, &status) < 0)
		return cnre_message(message, message_bytes, -errno, "%.200s: %s", name, strerror(errno));
	r = S_ISDIR(status.st_mode) ? add_directory(paths, name, prefix) : append(paths, strdup(name));
	if (r == -ENOENT)
		return cnre_message(message, message_bytes, r, "%.200s: no trace files in this directory", name);
	if (r == -E2BIG)
		return cnre_message(message, message_bytes, r, "%.200s: more than %u files", name, PATHS_MAX);
	if (r < 0)
		return cnre_message(message, message_bytes, r, "%.200s: %s", name, strerror(-r));
	return 0;
}

void sim_paths_close(struct sim_paths *paths)
{
	for (uint32_t i = 0; i < paths->count; i++)
		free(paths->path[i]);
	free(paths->path);
	*paths = (struct sim_paths){0};
}
