/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See elf_file.h. A file is input, and who is inspected may have written it, or changes it meanwhile: so it is read and not
 * mapped (what is cut off under a mapping ends the program), every length of a note is checked, which libelf has not done,
 * and nothing is made room for because a header says so.
 */
#include "tools/inspect/elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOTE_OWNER "stapsdt"
#define NOTE_TYPE 3u
#define NOTE_ADDRESSES 3u                 /* of the probe, of the base, of the semaphore; then provider, name, arguments */

#define SECTION_BYTES_MAX (256u << 20)    /* of names, symbols or notes; the largest programs known have some 100 MiB */
#define SYMBOLS_MAX (8u << 20)

struct symbol {
	uint64_t at, bytes;
	const char *name;
};

struct elf_file {
	int fd;
	char path[ELF_FILE_PATH_BYTES];   /* of the descriptor */
	Elf *elf;
	Elf_Data *notes;
	int has_symbols;                  /* they were read */
	struct symbol *symbol;            /* sorted */
	size_t symbol_count;
};

/* What libelf would make room for: compressed bytes become any number. 1: it may. */
static int is_fit(Elf_Scn *section, GElf_Shdr *ret_header)
{
	return section != NULL && gelf_getshdr(section, ret_header) != NULL && ret_header->sh_type != SHT_NOBITS &&
	       (ret_header->sh_flags & SHF_COMPRESSED) == 0 && ret_header->sh_size <= SECTION_BYTES_MAX;
}

static Elf_Data *bytes_of(Elf_Scn *section)
{
	GElf_Shdr header;

	return is_fit(section, &header) ? elf_getdata(section, NULL) : NULL;
}

static Elf_Scn *section_named(Elf *elf, const char *wanted)
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) != 0 || !is_fit(elf_getscn(elf, names), &header))
		return NULL;
	while ((section = elf_nextscn(elf, section)) != NULL) {
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
	GElf_Shdr header, names;
	Elf_Data *bytes = bytes_of(section);
	size_t count;
	struct symbol *grown;

	if (bytes == NULL || gelf_getshdr(section, &header) == NULL || !is_fit(elf_getscn(file->elf, header.sh_link), &names))
		return;
	count = bytes->d_size / gelf_fsize(file->elf, ELF_T_SYM, 1, EV_CURRENT);
	if (count > SYMBOLS_MAX)
		count = SYMBOLS_MAX;
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

/* A device or a pipe of that name is not even opened: that alone may do something. */
static int open_regular(const char *path)
{
	int named = open(path, O_PATH | O_CLOEXEC), fd, r;
	char link[ELF_FILE_PATH_BYTES];
	struct stat status;

	if (named < 0)
		return -errno;
	r = fstat(named, &status) < 0 ? -errno : !S_ISREG(status.st_mode) ? -ENOEXEC : 0;
	if (r == 0) {
		(void)snprintf(link, sizeof link, "/proc/self/fd/%d", named);
		fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		r = fd < 0 ? -errno : fd;
	}
	(void)close(named);
	return r;
}

/*
 * Tables whose length stands elsewhere than in the file's first header may be of any length, and libelf makes room for them at
 * once. No program that is loaded has them.
 */
static int has_long_tables(int fd)
{
	union {
		unsigned char ident[EI_NIDENT];
		Elf32_Ehdr small;
		Elf64_Ehdr large;
	} head;

	if (pread(fd, &head, sizeof head, 0) < (ssize_t)sizeof head.small || memcmp(head.ident, ELFMAG, SELFMAG) != 0)
		return 1;
	if (head.ident[EI_CLASS] == ELFCLASS32)
		return head.small.e_phnum == PN_XNUM || (head.small.e_shnum == 0 && head.small.e_shoff != 0);
	return head.large.e_phnum == PN_XNUM || (head.large.e_shnum == 0 && head.large.e_shoff != 0);
}

int elf_file_open(struct elf_file **ret_file, const char *path)
{
	struct elf_file *file = calloc(1, sizeof *file);

	if (file == NULL)
		return -ENOMEM;
	file->fd = open_regular(path);
	if (file->fd < 0) {
		int r = file->fd;

		free(file);
		return r;
	}
	(void)snprintf(file->path, sizeof file->path, "/proc/self/fd/%d", file->fd);
	if (has_long_tables(file->fd) || elf_version(EV_CURRENT) == EV_NONE ||
	    (file->elf = elf_begin(file->fd, ELF_C_READ, NULL)) == NULL || elf_kind(file->elf) != ELF_K_ELF) {
		elf_file_close(file);
		return -ENOEXEC;
	}
	file->notes = bytes_of(section_named(file->elf, ".note.stapsdt"));
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

const char *elf_file_path(const struct elf_file *file)
{
	return file->path;
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

uint32_t elf_file_probes(const struct elf_file *file, const char *provider, const char *name)
{
	size_t skip = NOTE_ADDRESSES * (gelf_getclass(file->elf) == ELFCLASS32 ? 4u : 8u);
	size_t at = 0, name_at, text_at, next;
	uint32_t count = 0;
	GElf_Nhdr note;

	if (file->notes == NULL)
		return 0;
	while (at < file->notes->d_size && (next = gelf_getnote(file->notes, at, &note, &name_at, &text_at)) > 0) {
		const char *bytes = file->notes->d_buf;

		count += note.n_type == NOTE_TYPE && note.n_namesz == sizeof NOTE_OWNER &&
			 memcmp(bytes + name_at, NOTE_OWNER, sizeof NOTE_OWNER) == 0 && note.n_descsz > skip &&
			 is_probe(bytes + text_at + skip, note.n_descsz - skip, provider, name);
		at = next;
	}
	return count;
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

const char *elf_file_symbol(struct elf_file *file, uint64_t file_off, uint64_t *ret_into)
{
	size_t low = 0, high;
	uint64_t address;

	if (!file->has_symbols)
		read_symbols(file);
	file->has_symbols = 1;
	high = file->symbol_count;
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
