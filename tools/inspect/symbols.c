/* SPDX-License-Identifier: Apache-2.0 */
/* See symbols.h. */
#include "tools/inspect/symbols.h"

#include "tools/inspect/elf_file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known {
	char path[PATH_MAX];
	struct elf_file *file;            /* NULL: it cannot be read */
};

struct symbols {
	uint32_t count;
	struct known *known;
};

int symbols_open(struct symbols **ret_symbols)
{
	struct symbols *symbols = calloc(1, sizeof *symbols);

	if (symbols != NULL)
		symbols->known = calloc(SYMBOLS_FILES_MAX, sizeof symbols->known[0]);
	if (symbols == NULL || symbols->known == NULL) {
		free(symbols);
		return -ENOMEM;
	}
	*ret_symbols = symbols;
	return 0;
}

struct symbols *symbols_close(struct symbols *symbols)
{
	if (symbols == NULL)
		return NULL;
	for (uint32_t i = 0; i < symbols->count; i++)
		elf_file_close(symbols->known[i].file);
	free(symbols->known);
	free(symbols);
	return NULL;
}

/* As the process sees it. 0: no code of a file is mapped there. */
static int find_mapping(uint32_t process, uint64_t address, char ret_path[PATH_MAX], uint64_t *ret_off)
{
	char name[64], line[PATH_MAX + 128], path[PATH_MAX], rights[8];
	uint64_t from, to, off;
	int found = 0;
	FILE *maps;

	(void)snprintf(name, sizeof name, "/proc/%u/maps", process);
	maps = fopen(name, "re");
	while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %4000[^\n]", &from, &to, rights, &off, path) != 5)
			continue;
		found = address >= from && address < to && rights[2] == 'x' && path[0] == '/';
		if (found)
			*ret_off = address - from + off;
	}
	if (maps != NULL)
		(void)fclose(maps);
	if (found)
		memcpy(ret_path, path, sizeof path);
	return found;
}

/* The same path under several processes is taken for one file. */
static struct elf_file *file_of(struct symbols *symbols, uint32_t process, const char *path)
{
	char name[PATH_MAX + 32];
	struct known *known;

	for (uint32_t i = 0; i < symbols->count; i++)
		if (strcmp(symbols->known[i].path, path) == 0)
			return symbols->known[i].file;
	if (symbols->count == SYMBOLS_FILES_MAX)
		return NULL;
	known = &symbols->known[symbols->count++];
	(void)snprintf(known->path, sizeof known->path, "%s", path);
	(void)snprintf(name, sizeof name, "/proc/%u/root%s", process, path);
	if (elf_file_open(&known->file, name) < 0)
		known->file = NULL;
	return known->file;
}

int symbols_name(struct symbols *symbols, uint32_t process, uint64_t address, char text[SYMBOLS_TEXT_BYTES])
{
	char path[PATH_MAX];
	const char *name = NULL, *last;
	struct elf_file *file;
	uint64_t off, into = 0;

	if (!find_mapping(process, address, path, &off))
		return -ENOENT;
	file = file_of(symbols, process, path);
	if (file != NULL)
		name = elf_file_symbol(file, off, &into);
	last = strrchr(path, '/') + 1;
	if (name != NULL)
		(void)snprintf(text, SYMBOLS_TEXT_BYTES, "%.100s+0x%" PRIx64 " (%.60s)", name, into, last);
	else
		(void)snprintf(text, SYMBOLS_TEXT_BYTES, "0x%" PRIx64 " (%.60s)", off, last);
	return 0;
}
