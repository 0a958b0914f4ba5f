/* SPDX-License-Identifier: Apache-2.0 */
/* tools/inspect/elf_file.c: which probes are in a program, and whose code an offset is. Left out where cnre-inspect is. */
#include "tools/inspect/elf_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	cr_expect(elf_file_has_probe(file, "cnre", "load_chunk"));
	cr_expect(!elf_file_has_probe(file, "cnre", "load_chun"), "a name is whole");
	cr_expect(!elf_file_has_probe(file, "cnr", "load_chunk"));
	cr_expect(!elf_file_has_probe(file, "cnre", "acquire_done"), "the library's");
	elf_file_close(file);
	cr_assert_eq(elf_file_open(&file, built("libcnre.so")), 0);
	cr_expect(elf_file_has_probe(file, "cnre", "acquire_done"));
	elf_file_close(file);
}

Test(inspect_elf_file, a_program_without_probes_and_what_is_no_program)
{
	struct elf_file *file = NULL;

	cr_assert_eq(elf_file_open(&file, built("cnre-gen")), 0);
	cr_expect(!elf_file_has_notes(file));
	cr_expect(!elf_file_has_probe(file, "cnre", "load_chunk"));
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
