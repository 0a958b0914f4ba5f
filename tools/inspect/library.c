/* SPDX-License-Identifier: Apache-2.0 */
/* See library.h. */
#include "tools/inspect/library.h"

#include "tools/inspect/elf_file.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 32u
#define PLACES_MAX 32u                    /* of one probe in one file; a library has six at most */
#define LIBRARY "libcnre.so"
#define MARK "acquire_done"               /* whoever has it has the library */

struct libraries {
	uint32_t count;
	struct {
		dev_t device;
		ino_t inode;
	} file[FILES_MAX];
};

/* 1: it was looked at before. */
static int is_known(const struct inspect *inspect, const struct stat *status)
{
	const struct libraries *known = inspect->libraries;

	for (uint32_t i = 0; known != NULL && i < known->count; i++)
		if (known->file[i].device == status->st_dev && known->file[i].inode == status->st_ino)
			return 1;
	return 0;
}

/* 1: it is new, and room is left to know it again. */
static int remember(struct inspect *inspect, const struct stat *status)
{
	struct libraries *known = inspect->libraries;

	if (is_known(inspect, status))
		return 0;
	if (known == NULL) {
		known = inspect->libraries = calloc(1, sizeof *known);
		if (known == NULL)
			return 0;
	}
	if (known->count == FILES_MAX) {
		inspect_note(inspect, "more than %u different libraries are in use: of the others nothing is seen", FILES_MAX);
		return 0;
	}
	known->file[known->count].device = status->st_dev;
	known->file[known->count++].inode = status->st_ino;
	return 1;
}

/* 0: it was looked at before, or is not there. */
static int is_new(struct inspect *inspect, const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && remember(inspect, &status);
}

static int open_file(struct elf_file **ret_file, const char *path, const char *shown, char *message)
{
	int r = elf_file_open(ret_file, path);

	if (r < 0)
		(void)snprintf(message, INSPECT_MESSAGE_BYTES, "%.500s: %s", shown, r == -ENOEXEC ? "is no program or library" : strerror(-r));
	return r;
}

/*
 * Names what is missing: first whether there are any probes at all. A library is whatever a client calls by that name: one
 * that has its probe in thousands of places would take all places that there are to attach to.
 */
static int check(const struct inspect *inspect, enum inspect_where where, const struct elf_file *file, const char *shown, char *message)
{
	int r = 0;

	if (!elf_file_has_notes(file)) {
		(void)snprintf(message, INSPECT_MESSAGE_BYTES,
			       "%.500s: has no probes at all: it was built without sys/sdt.h, or its section .note.stapsdt was stripped", shown);
		r = -ENOENT;
	}
	for (const struct inspect_probe *probe = inspect->verb->probes; r == 0 && probe->name != NULL; probe++) {
		uint32_t places = probe->where == where ? elf_file_probes(file, "cnre", probe->name) : 1;

		if (places == 0 && !probe->is_optional) {
			(void)snprintf(message, INSPECT_MESSAGE_BYTES,
				       "%.500s: has no probe cnre:%s: it is of another release than this cnre-inspect", shown, probe->name);
			r = -ENOENT;
		} else if (places > PLACES_MAX) {
			(void)snprintf(message, INSPECT_MESSAGE_BYTES, "%.500s: has probe cnre:%s in %u places: it is no build of CNRE", shown,
				       probe->name, places);
			r = -E2BIG;
		}
	}
	return r;
}

static int attach_file(struct inspect *inspect, enum inspect_where where, const struct elf_file *file, const char *shown, char *message)
{
	int r = check(inspect, where, file, shown, message);

	for (const struct inspect_probe *probe = inspect->verb->probes; r == 0 && probe->name != NULL; probe++) {
		const struct programs_place place = {.path = elf_file_path(file), .shown = shown, .probe = probe->name};

		if (probe->where != where)
			continue;
		r = programs_attach_probe(inspect->programs, probe->at, &place, probe->kind, message);
		if (r < 0 && probe->is_optional) {
			inspect_note(inspect, "%.150s", message);
			r = 0;
		}
	}
	return r;
}

static int attach(struct inspect *inspect, enum inspect_where where, const char *path, const char *shown, char *message)
{
	struct elf_file *file;
	int r = open_file(&file, path, shown, message);

	if (r < 0)
		return r;
	r = attach_file(inspect, where, file, shown, message);
	elf_file_close(file);
	return r;
}

static void shown_path(const char *link, char ret_path[PATH_MAX])
{
	ssize_t length = readlink(link, ret_path, PATH_MAX - 1);

	if (length < 0)
		(void)snprintf(ret_path, PATH_MAX, "%.1000s", link);
	else
		ret_path[length] = '\0';
}

static int wants(const struct inspect *inspect, enum inspect_where where)
{
	for (const struct inspect_probe *probe = inspect->verb->probes; probe->name != NULL; probe++)
		if (probe->where == where)
			return 1;
	return 0;
}

int library_attach_manager(struct inspect *inspect, uint32_t process, char message[INSPECT_MESSAGE_BYTES])
{
	char link[64], shown[PATH_MAX];

	(void)snprintf(link, sizeof link, "/proc/%u/exe", process);
	shown_path(link, shown);
	if (!wants(inspect, IN_MANAGER))
		return 0;
	return is_new(inspect, link) ? attach(inspect, IN_MANAGER, link, shown, message) : 0;
}

/* ---- clients ---- */

/* The mapped libcnre of a process, as it sees it. 0: it has none. */
static int mapped_library(uint32_t process, char ret_path[PATH_MAX])
{
	char name[64], line[PATH_MAX + 128], path[PATH_MAX];
	int found = 0;
	FILE *maps;

	(void)snprintf(name, sizeof name, "/proc/%u/maps", process);
	maps = fopen(name, "re");
	while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
		const char *last;

		if (sscanf(line, "%*s %*s %*s %*s %*s %4000[^\n]", path) != 1)
			continue;
		last = strrchr(path, '/');
		found = last != NULL && strncmp(last + 1, LIBRARY, sizeof LIBRARY - 1) == 0 && strstr(path, " (deleted)") == NULL;
	}
	if (maps != NULL)
		(void)fclose(maps);
	if (found)
		memcpy(ret_path, path, sizeof path);
	return found;
}

static int attach_client(struct inspect *inspect, uint32_t process, char *message)
{
	char path[PATH_MAX + 32], shown[PATH_MAX];
	struct elf_file *file;
	int r;

	if (mapped_library(process, shown)) {
		(void)snprintf(path, sizeof path, "/proc/%u/root%s", process, shown); /* it may have another one */
		return is_new(inspect, path) ? attach(inspect, IN_LIBRARY, path, shown, message) : 0;
	}
	(void)snprintf(path, sizeof path, "/proc/%u/exe", process);
	shown_path(path, shown);
	/* Looked at once: is_new remembers the program. It may have the library inside. */
	if (!is_new(inspect, path))
		return 0;
	r = open_file(&file, path, shown, message);
	if (r < 0)
		return r;
	if (elf_file_probes(file, "cnre", MARK) > 0)
		r = attach_file(inspect, IN_LIBRARY, file, shown, message);
	else
		inspect_note(inspect, "client %u (%.100s): no libcnre with probes is found in it: of its waits and leases nothing is seen",
			     process, shown);
	elf_file_close(file);
	return r;
}

/* Nobody is attached: most likely the next one has what was built or installed with the manager. */
static void attach_beside(struct inspect *inspect)
{
	static const char *const beside[] = {"", "/../lib", "/../lib/x86_64-linux-gnu", "/../lib64", "/../lib/aarch64-linux-gnu"};
	char link[64], program[PATH_MAX], path[PATH_MAX + 64], message[INSPECT_MESSAGE_BYTES];
	char *slash;

	(void)snprintf(link, sizeof link, "/proc/%u/exe", inspect->subject.manager[0]);
	shown_path(link, program);
	slash = strrchr(program, '/');
	if (slash == NULL)
		return;
	*slash = '\0';
	for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
		(void)snprintf(path, sizeof path, "%s%s/" LIBRARY ".0", program, beside[i]);
		if (access(path, R_OK) != 0)
			continue;
		if (is_new(inspect, path) && attach(inspect, IN_LIBRARY, path, path, message) < 0)
			inspect_note(inspect, "%.200s", message);
		return;
	}
	inspect_note(inspect, "no client was attached at the start, and no library lies beside the manager: the first waits of a client "
			      "are not seen (--library)");
}

int library_attach_clients(struct inspect *inspect, char message[INSPECT_MESSAGE_BYTES])
{
	int is_first = inspect->started_ns == 0;

	if (!wants(inspect, IN_LIBRARY))
		return 0;
	if (inspect->options.library != NULL) {
		if (!is_first)
			return 0;
		return attach(inspect, IN_LIBRARY, inspect->options.library, inspect->options.library, message);
	}
	/* One client's file is no reason to see nothing of the others. */
	for (uint32_t i = 0; i < inspect->subject.client_count; i++)
		if (inspect->subject.client[i].is_attached && attach_client(inspect, inspect->subject.client[i].process, message) < 0)
			inspect_note(inspect, "client %u: %.200s", inspect->subject.client[i].process, message);
	if (is_first)
		attach_beside(inspect);
	return 0;
}

void library_close(struct inspect *inspect)
{
	free(inspect->libraries);
	inspect->libraries = NULL;
}
