# SPDX-License-Identifier: MIT OR Apache-2.0
# Fills a heap with strings of 1,000 bytes, forks children that each overwrite a part of them, and waits for all.
# Arguments: the number of strings, and of children.
use strict;
use warnings;

my ($strings, $children) = @ARGV;
our @heap;
push @heap, chr(97 + $_ % 26) x 1000 for 1 .. $strings;
my @started;
for my $child (0 .. $children - 1) {
    my $id = fork() // die "cannot fork: $!";
    if (!$id) {
        my $part = int($strings / $children);
        substr($heap[$_], 0, 1) = "A" for $child * $part .. ($child + 1) * $part - 1;
        exit 0;
    }
    push @started, $id;
}
my $failed = 0;
for my $id (@started) {
    waitpid($id, 0) == $id && $? == 0 or $failed++;
}
my $changed = grep { /^A/ } @heap;
print "$strings strings, $failed children failed, $changed strings changed here\n";
