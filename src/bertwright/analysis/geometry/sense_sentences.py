"""Sentences with an ambiguous word: six for each of its two senses."""

AMBIGUOUS_WORDS = ("bank", "play", "spring", "match", "letter", "light", "fair", "ring")

_SENTENCES = """\
she took her money to the bank
the bank lends to people who buy a house
he opened an account with a bank in the city
the bank closed and nobody could pay
a bank must keep some of the gold
they asked the bank for a loan

we sat on the bank and watched the river
the boat was pulled up on the bank
grass grew along the bank of the stream
the water rose over the bank and flooded the field
a man was fishing from the bank
they swam to the far bank of the lake

the play was shown in the old theatre
he wrote a play in five acts about a king
the actors learned the play by heart
after the play the audience stood up
in the last scene of the play she dies
the play had a poor writer and a good cast

the next play gave the team a goal
a quick play by the defence saved the game
the coach called for a play on the left side
the ball was out and the referee stopped the play
it was the best play of the match
their play was faster than that of the other team

in spring the snow melts
the birds come back every spring
they will marry next spring
it was a cold spring and a hot summer
farmers sow their fields in spring
flowers open in the first days of spring

the spring in the clock was broken
a metal spring pushes the door shut
pull the spring and let it go
the bed has a spring that hurts my back
the wheel hangs on a strong spring
he put a new spring into the machine

our team won the match
the match ended without a goal
thousands watched the match in the stadium
she lost the match against a younger player
rain stopped the match for an hour
it was the last match of the season

he lit the candle with a match
the match burned his fingers
she struck a match in the dark
there was one match left in the box
a match fell on the dry hay and set it on fire
he held the match to his pipe

she wrote a letter to her mother
the letter came by post in the morning
he read the letter and burned it
a letter from the king was brought to the town
there was no stamp on the letter
I got a long letter from an old friend

the first letter of the word is large
every letter of the alphabet has a sound
the child learned to write the letter B
one letter of the name is wrong
a capital letter begins the sentence
this letter is spoken like two others

the light of the lamp was weak
a bright light shone from the window
plants need light and water
he switched off the light and slept
the light came through the leaves
a red light burned above the door

the box was light and easy to carry
feathers are light and stones are heavy
she wore a light coat of thin cloth
a light load is no trouble for the horse
the frame is light but strong
we ate a light meal and went on

it is only fair that both get the same
the judge was fair to both sides
we paid a fair price for the work
that rule is not fair to the poor
a fair fight has rules
they want a fair share of the money

farmers sold their cows at the fair
there were wheels and sweets at the fair
the children went to the fair in the village
every year the fair comes to our town
he won a doll at the fair
many sellers had tents at the fair

he gave her a ring of gold
the ring would not come off her finger
a stone was set in the ring
she lost the ring of her grandmother
the thief took a ring and a watch
he bought a ring for the wedding

I heard the ring of the telephone
the ring of the bell woke the house
after the third ring she answered
the loud ring ended the lesson
one short ring means the doctor is wanted
wait for the ring and open the door"""

_SENSES = [tuple(block.split("\n")) for block in _SENTENCES.split("\n\n")]

SENSE_SENTENCES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = dict(
    zip(AMBIGUOUS_WORDS, zip(_SENSES[::2], _SENSES[1::2], strict=True), strict=True)
)
"""Sentences for the first and for the second sense, by word."""
