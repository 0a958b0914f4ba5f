/* SPDX-License-Identifier: Apache-2.0 */
/* See elf_file.h. A file is input: every length of a note is checked, which libelf has not done. */
#include "tools/inspect/elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOTE_OWNER "stapsdt"
#define NOTE_TYPE 3u
#define NOTE_ADDRESSES 3u                 /* of the probe, of the base, of the semaphore; then provider, name, arguments */

struct symbol {
	uint64_t at, bytes;
	const char *name;
};

struct elf_file {
	int fd;
	Elf *elf;
	Elf_Data *notes;
	struct symbol *symbol;            /* sorted */
	size_t symbol_count;
};

static Elf_Scn *section_named(Elf *elf, const char *wanted)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) != 0)
		return NULL;
	while ((section = elf_nextscn(elf, section)) != NULL) {
		GElf_Shdr header;
		const char *name = gelf_getshdr(section, &header) == NULL ? NULL : elf_strptr(elf, names, header.sh_name);

		if (name != NULL && strcmp(name, wanted) == 0)
			return section;
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	const struct symbol *left = a, *right = b;

	return (left->at > right->at) - (left->at < right->at);
}

static void take_symbols(struct elf_file *file, Elf_Scn *section)
{
	GElf_Shdr header;
	Elf_Data *bytes = elf_getdata(section, NULL);
	size_t count;
	struct symbol *grown;

	if (bytes == NULL || gelf_getshdr(section, &header) == NULL || header.sh_entsize == 0)
		return;
	count = header.sh_size / header.sh_entsize;
	grown = reallocarray(file->symbol, file->symbol_count + count + 1, sizeof *grown);
	if (grown == NULL)
		return;
	file->symbol = grown;
	for (size_t i = 0; i < count; i++) {
		GElf_Sym symbol;
		const char *name;

		if (gelf_getsym(bytes, (int)i, &symbol) == NULL || GELF_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0)
			continue;
		name = elf_strptr(file->elf, header.sh_link, symbol.st_name);
		if (name != NULL && name[0] != '\0')
			grown[file->symbol_count++] =
				(struct symbol){.at = symbol.st_value, .bytes = symbol.st_size, .name = name};
	}
}

static void read_symbols(struct elf_file *file)
{
	Elf_Scn *full = section_named(file->elf, ".symtab"), *dynamic = section_named(file->elf, ".dynsym");

	if (full != NULL)
		take_symbols(file, full);
	if (file->symbol_count == 0 && dynamic != NULL)
		take_symbols(file, dynamic);
	if (file->symbol_count > 1)
		qsort(file->symbol, file->symbol_count, sizeof file->symbol[0], compare);
}

int elf_file_open(struct elf_file **ret_file, const char *path)
{
	struct elf_file *file = calloc(1, sizeof *file);
	Elf_Scn *notes;

	if (file == NULL)
		return -ENOMEM;
	file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file->fd < 0) {
		int r = -errno;

		free(file);
		return r;
	}
	if (elf_version(EV_CURRENT) == EV_NONE || (file->elf = elf_begin(file->fd, ELF_C_READ_MMAP, NULL)) == NULL ||
	    elf_kind(file->elf) != ELF_K_ELF) {
		elf_file_close(file);
		return -ENOEXEC;
	}
	notes = section_named(file->elf, ".note.stapsdt");
	file->notes = notes == NULL ? NULL : elf_getdata(notes, NULL);
	read_symbols(file);
	*ret_file = file;
	return 0;
}

struct elf_file *elf_file_close(struct elf_file *file)
{
	if (file == NULL)
		return NULL;
	if (file->elf != NULL)
		(void)elf_end(file->elf);
	(void)close(file->fd);
	free(file->symbol);
	free(file);
	return NULL;
}

int elf_file_has_notes(const struct elf_file *file)
{
	return file->notes != NULL;
}

/* provider NUL name NUL arguments NUL, somewhere in `bytes` bytes. */
static int is_probe(const char *text, size_t bytes, const char *provider, const char *name)
{
	size_t first = strlen(provider) + 1, second = strlen(name) + 1;

	return bytes >= first + second && memcmp(text, provider, first) == 0 && memcmp(text + first, name, second) == 0;
}

int elf_file_has_probe(const struct elf_file *file, const char *provider, const char *name)
{
	size_t skip = NOTE_ADDRESSES * (gelf_getclass(file->elf) == ELFCLASS32 ? 4u : 8u);
	size_t at = 0, name_at, text_at, next;
	GElf_Nhdr note;

	if (file->notes == NULL)
		return 0;
	while (at < file->notes->d_size && (next = gelf_getnote(file->notes, at, &note, &name_at, &text_at)) > 0) {
		const char *bytes = file->notes->d_buf;

		if (note.n_type == NOTE_TYPE && note.n_namesz == sizeof NOTE_OWNER &&
		    memcmp(bytes + name_at, NOTE_OWNER, sizeof NOTE_OWNER) == 0 && note.n_descsz > skip &&
		    is_probe(bytes + text_at + skip, note.n_descsz - skip, provider, name))
			return 1;
		at = next;
	}
	return 0;
}

/* What lies at this offset of the file, as addresses in it are numbered. 0: it is not loaded. */
static int address_of(const struct elf_file *file, uint64_t file_off, uint64_t *ret_address)
{
	size_t count;

	if (elf_getphdrnum(file->elf, &count) != 0)
		return 0;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr header;

		if (gelf_getphdr(file->elf, (int)i, &header) == NULL || header.p_type != PT_LOAD || file_off < header.p_offset ||
		    file_off - header.p_offset >= header.p_filesz)
			continue;
		*ret_address = header.p_vaddr + (file_off - header.p_offset);
		return 1;
	}
	return 0;
}

const char *elf_file_symbol(const struct elf_file *file, uint64_t file_off, uint64_t *ret_into)
{
	size_t low = 0, high = file->symbol_count;
	uint64_t address;

	if (!address_of(file, file_off, &address))
		return NULL;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (file->symbol[middle].at <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || address - file->symbol[low - 1].at >= file->symbol[low - 1].bytes)
		return NULL;
	*ret_into = address - file->symbol[low - 1].at;
	return file->symbol[low - 1].name;
}
