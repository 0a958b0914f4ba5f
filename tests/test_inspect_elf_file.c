/* SPDX-License-Identifier: Apache-2.0 */
/* tools/inspect/elf_file.c: which probes are in a program, and whose code an offset is. Left out where cnre-inspect is. */
#include "tools/inspect/elf_file.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *built(const char *name)
{
	static char path[512];
	const char *build = getenv("CNRE_BUILD");

	(void)snprintf(path, sizeof path, "%s/%s", build != NULL ? build : "build", name);
	return path;
}

Test(inspect_elf_file, probes_are_found_by_provider_and_name)
{
	struct elf_file *file;

	cr_assert_eq(elf_file_open(&file, built("cnre-managerd")), 0);
	cr_expect(elf_file_has_notes(file));
	cr_expect(elf_file_probes(file, "cnre", "load_chunk"));
	cr_expect(!elf_file_probes(file, "cnre", "load_chun"), "a name is whole");
	cr_expect(!elf_file_probes(file, "cnr", "load_chunk"));
	cr_expect(!elf_file_probes(file, "cnre", "acquire_done"), "the library's");
	elf_file_close(file);
	cr_assert_eq(elf_file_open(&file, built("libcnre.so")), 0);
	cr_expect(elf_file_probes(file, "cnre", "acquire_done"));
	elf_file_close(file);
}

Test(inspect_elf_file, a_program_without_probes_and_what_is_no_program)
{
	struct elf_file *file = NULL;

	cr_assert_eq(elf_file_open(&file, built("cnre-gen")), 0);
	cr_expect(!elf_file_has_notes(file));
	cr_expect(!elf_file_probes(file, "cnre", "load_chunk"));
	elf_file_close(file);
	file = NULL;
	cr_expect_eq(elf_file_open(&file, "/proc/self/status"), -ENOEXEC);
	cr_expect_eq(elf_file_open(&file, "/nonexistent"), -ENOENT);
	cr_expect_null(file);
}

/* A function of this program, at its place in the file. */
int test_inspect_elf_file_mark(int value);
int test_inspect_elf_file_mark(int value)
{
	return value * 3 + 1;
}

/* Where in this program's file an address is. */
static uint64_t file_off_of(const void *address)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t from, to, off, found = 0;
	char line[512];

	while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64, &from, &to, &off) == 3 && (uintptr_t)address >= from &&
		    (uintptr_t)address < to)
			found = (uintptr_t)address - from + off;
	if (maps != NULL)
		(void)fclose(maps);
	return found;
}

Test(inspect_elf_file, an_offset_is_in_the_function_that_lies_there)
{
	uint64_t at = file_off_of((const void *)(uintptr_t)test_inspect_elf_file_mark), into = 99;
	struct elf_file *file;
	const char *name;

	cr_assert_eq(elf_file_open(&file, "/proc/self/exe"), 0);
	name = elf_file_symbol(file, at, &into);
	cr_assert_not_null(name);
	cr_expect_str_eq(name, "test_inspect_elf_file_mark");
	cr_expect_eq(into, 0);
	cr_expect_str_eq(elf_file_symbol(file, at + 1, &into), "test_inspect_elf_file_mark");
	cr_expect_eq(into, 1);
	cr_expect_null(elf_file_symbol(file, UINT64_MAX / 2, &into), "beyond the file");
	elf_file_close(file);
}

/* ---- files that lie ---- */

enum { NAMES_AT = 0x200, NOTES_AT = 0x400, SECTIONS = 4 };

/* A program of nothing but headers, and `places` notes of one probe; as a path. */
static const char *lying(Elf64_Shdr section[SECTIONS], Elf64_Ehdr *head, uint32_t places)
{
	static const char names[] = "\0.shstrtab\0.note.stapsdt\0.symtab";
	static char path[64];
	const struct {
		Elf64_Nhdr head;
		char owner[8], address[3 * 8], text[20];
	} note = {.head = {.n_namesz = 8, .n_descsz = 44, .n_type = 3}, .owner = "stapsdt", .text = "cnre\0acquire_done\0"};
	int fd = memfd_create("lying", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	*head = (Elf64_Ehdr){.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
			     .e_type = ET_DYN,
			     .e_machine = EM_X86_64,
			     .e_version = EV_CURRENT,
			     .e_shoff = sizeof *head,
			     .e_ehsize = sizeof *head,
			     .e_shentsize = sizeof section[0],
			     .e_shnum = SECTIONS,
			     .e_shstrndx = 1};
	memset(section, 0, SECTIONS * sizeof section[0]);
	section[1] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = NAMES_AT, .sh_size = sizeof names};
	section[2] = (Elf64_Shdr){
		.sh_name = 11, .sh_type = SHT_NOTE, .sh_offset = NOTES_AT, .sh_size = places * sizeof note, .sh_addralign = 4};
	section[3] = (Elf64_Shdr){.sh_name = 25, .sh_type = SHT_SYMTAB, .sh_offset = NOTES_AT, .sh_size = 64, .sh_link = 1, .sh_entsize = 1};
	cr_assert_eq(pwrite(fd, names, sizeof names, NAMES_AT), (ssize_t)sizeof names);
	for (uint32_t i = 0; i < places; i++)
		cr_assert_eq(pwrite(fd, &note, sizeof note, (off_t)(NOTES_AT + i * sizeof note)), (ssize_t)sizeof note);
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return path;
}

static void store(const char *path, const Elf64_Shdr section[SECTIONS], const Elf64_Ehdr *head, uint64_t bytes)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
	cr_assert_eq(pwrite(fd, head, sizeof *head, 0), (ssize_t)sizeof *head);
	cr_assert_eq(pwrite(fd, section, SECTIONS * sizeof section[0], sizeof *head), (ssize_t)(SECTIONS * sizeof section[0]));
	(void)close(fd);
}

Test(inspect_elf_file, places_of_a_probe_are_counted)
{
	Elf64_Shdr section[SECTIONS];
	Elf64_Ehdr head;
	const char *path = lying(section, &head, 1000);
	struct elf_file *file;

	store(path, section, &head, 1 << 20);
	cr_assert_eq(elf_file_open(&file, path), 0);
	cr_expect(elf_file_has_notes(file));
	cr_expect_eq(elf_file_probes(file, "cnre", "acquire_done"), 1000, "%u", elf_file_probes(file, "cnre", "acquire_done"));
	cr_expect_eq(elf_file_probes(file, "cnre", "acquire_don"), 0);
	elf_file_close(file);
}

Test(inspect_elf_file, what_is_cut_off_while_it_is_looked_at_ends_nobody)
{
	Elf64_Shdr section[SECTIONS];
	Elf64_Ehdr head;
	const char *path = lying(section, &head, 10);
	struct elf_file *file;
	uint64_t into;

	store(path, section, &head, 1 << 20);
	cr_assert_eq(elf_file_open(&file, path), 0);
	cr_assert_eq(truncate(path, 0), 0);
	cr_expect_eq(elf_file_probes(file, "cnre", "acquire_done"), 10);
	cr_expect_null(elf_file_symbol(file, 0x400, &into));
	elf_file_close(file);
}

Test(inspect_elf_file, sections_of_any_length_are_not_made_room_for, .timeout = 20)
{
	const uint64_t bytes = 64ull << 30; /* of holes */
	Elf64_Shdr section[SECTIONS];
	Elf64_Ehdr head;
	const char *path = lying(section, &head, 1);
	struct elf_file *file;
	uint64_t into;

	section[2].sh_size = section[3].sh_size = bytes - NOTES_AT;
	store(path, section, &head, bytes);
	cr_assert_eq(elf_file_open(&file, path), 0);
	cr_expect(!elf_file_has_notes(file));
	cr_expect_null(elf_file_symbol(file, 0x400, &into));
	elf_file_close(file);
	section[0].sh_size = 1 << 16;
	section[0].sh_info = 1 << 16;
	head.e_shnum = 0;
	store(path, section, &head, bytes);
	cr_expect_eq(elf_file_open(&file, path), -ENOEXEC, "more sections than a first header can count");
	head.e_shnum = SECTIONS;
	head.e_phnum = PN_XNUM;
	store(path, section, &head, bytes);
	cr_expect_eq(elf_file_open(&file, path), -ENOEXEC, "more segments, too");
}

Test(inspect_elf_file, only_a_regular_file_is_opened)
{
	struct elf_file *file = NULL;
	char name[] = "/tmp/cnre-elf-XXXXXX", pipe_name[64], library[PATH_MAX];
	struct stat status, first;

	cr_assert_not_null(mkdtemp(name));
	(void)snprintf(pipe_name, sizeof pipe_name, "%s/libcnre.so.0", name);
	cr_assert_eq(mkfifo(pipe_name, 0600), 0);
	cr_expect_eq(elf_file_open(&file, pipe_name), -ENOEXEC);
	cr_expect_eq(elf_file_open(&file, name), -ENOEXEC);
	cr_expect_eq(elf_file_open(&file, "/dev/zero"), -ENOEXEC);
	cr_expect_null(file);
	(void)unlink(pipe_name);
	/* Another file takes the name: what is attached to is what was looked at. */
	cr_assert_not_null(realpath(built("libcnre.so.0"), library));
	cr_assert_eq(symlink(library, pipe_name), 0);
	cr_assert_eq(elf_file_open(&file, pipe_name), 0);
	(void)unlink(pipe_name);
	cr_assert_eq(symlink("/bin/sh", pipe_name), 0);
	cr_assert_eq(stat(elf_file_path(file), &status), 0);
	cr_assert_eq(stat(built("libcnre.so.0"), &first), 0);
	cr_expect_eq(status.st_ino, first.st_ino);
	elf_file_close(file);
	(void)unlink(pipe_name);
	(void)rmdir(name);
}
