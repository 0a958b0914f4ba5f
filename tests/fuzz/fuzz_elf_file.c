/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: any bytes as a program or library whose probes and symbols cnre-inspect looks for; whoever is inspected may have
 * written them. Refused, or no more is found than fits in them. Then the same bytes as extents: each answer is of the file
 * that was asked about, and moves on. Left out where cnre-inspect is.
 */
#include "base/check.h"
#include "tools/inspect/elf_file.h"
#include "tools/inspect/extent_map.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUTS_MAX = 4096 };

static void look_as_program(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	char path[64];
	struct elf_file *file;

	CNRE_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (elf_file_open(&file, path) == 0) {
		CNRE_CHECK(elf_file_probes(file, "cnre", "acquire_done") <= size / 20);
		CNRE_CHECK(elf_file_has_notes(file) || elf_file_probes(file, "cnre", "load_start") == 0);
		for (uint64_t off = 0; off < 1 << 20; off = off * 3 + 1) {
			uint64_t into = 0;
			const char *name = elf_file_symbol(file, off, &into);

			CNRE_CHECK(name == NULL || strlen(name) < size);
		}
		elf_file_close(file);
	}
	(void)close(fd);
}

static void look_as_extents(const uint8_t *data, size_t size)
{
	struct extent_map map = {.extent = NULL};
	struct {
		uint8_t device, file, is_far, bytes;
		uint32_t begin;
	} from;
	uint64_t end = 0;

	for (; size >= sizeof from; data += sizeof from, size -= sizeof from) {
		memcpy(&from, data, sizeof from);
		(void)extent_map_add(&map, &(struct extent){.device = from.device % 2,
							    .begin = from.begin + (from.is_far == 1 ? UINT64_MAX - UINT32_MAX : 0),
							    .bytes = (uint64_t)from.bytes << from.is_far % 32,
							    .file = from.file});
	}
	extent_map_sort(&map);
	for (uint32_t i = 0; i < map.count; i++) {
		CNRE_CHECK(i == 0 || map.extent[i].device > map.extent[i - 1].device || map.extent[i].begin >= end);
		end = map.extent[i].begin + map.extent[i].bytes;
	}
	end = 0;
	for (uint32_t i = 0; i < CUTS_MAX && end < UINT32_MAX; i++) {
		struct extent_piece piece = extent_map_cut(&map, 1, end, UINT32_MAX);

		CNRE_CHECK(piece.bytes > 0 && piece.bytes <= UINT32_MAX);
		end += piece.bytes;
	}
	extent_map_done(&map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	look_as_program(data, size);
	look_as_extents(data, size);
	return 0;
}
